"""Build the wheel and the sdist, and run tools/smoke.py on each in empty environments.

    python tools/check_packages.py [--quick] [--python PATH ...]

Every environment is new, and holds nothing but the package and what it depends on: once the newest versions that there are
for a Python, once the oldest that pyproject.toml allows and that have a wheel for it. `--python` names interpreters (this one,
if none is named); `--quick` takes the wheel with the newest versions alone. Needs `pip install build`. What was built stays in
dist/; a table of what ran is printed last.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = ("numpy", "scipy", "llvmlite")


def run(*command: object, cwd: Path | None = None) -> str:
    print("+", *command, flush=True)
    done = subprocess.run([str(part) for part in command], check=False, cwd=cwd, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stdout)
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return done.stdout


def number(version: str) -> tuple[int, ...]:
    """
    >>> number("1.14.1") > number("1.9")
    True
    """
    return tuple(int(part) for part in version.split("."))


def has_wheel(python: Path, requirement: str) -> bool:
    command = [str(python), "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps", "--ignore-installed"]
    command += ["--only-binary", ":all:", requirement]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def oldest(python: Path) -> list[str]:
    """The oldest versions of what matters that we allow and that have a wheel for this Python, as requirements."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found = []
    for text in wanted:
        match = re.fullmatch(r"([\w-]+)>=([\d.]+)", text)
        if match and match[1] in ALWAYS:
            listed = run(python, "-m", "pip", "index", "versions", match[1])
            versions = re.findall(r"\d+(?:\.\d+)+", listed.split("Available versions:")[1].splitlines()[0])
            allowed = sorted((v for v in versions if number(v) >= number(match[2])), key=number)
            found.append(next(r for r in (f"{match[1]}=={v}" for v in allowed) if has_wheel(python, r)))
    return found


def check(interpreter: Path, package: Path, old: bool) -> str:
    """Install a package and run the smoke test; what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        run(interpreter, "-m", "venv", folder)
        python = Path(folder, "Scripts" if sys.platform == "win32" else "bin", "python")
        run(python, "-m", "pip", "install", "--quiet", package, *(oldest(python) if old else ()))
        script = Path(folder, "smoke.py")
        script.write_text((ROOT / "tools" / "smoke.py").read_text())
        return run(python, script, "--installed", cwd=Path(folder)).splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the wheel with the newest dependencies alone")
    parser.add_argument("--python", type=Path, action="append", help="an interpreter to test with; may be repeated")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
        (wheel,) = Path(folder).glob("*.whl")
        (sdist,) = Path(folder).glob("*.tar.gz")
        rows = []
        for python in options.python or [Path(sys.executable)]:
            for package, old in ((wheel, False),) if options.quick else ((wheel, False), (wheel, True), (sdist, False)):
                rows.append(f"{package.suffix[1:]:4} {'oldest' if old else 'newest'}  {check(python, package, old)}")
                print(rows[-1], flush=True)
        dist = ROOT / "dist"
        dist.mkdir(exist_ok=True)
        for package in (wheel, sdist):
            (dist / package.name).write_bytes(package.read_bytes())
            print("built", dist / package.name)
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()

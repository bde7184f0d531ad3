"""Build the wheel and the sdist, and run tools/smoke.py on each in empty environments.

    python tools/check_packages.py [--quick]      --quick: the wheel with the newest dependencies alone

Every environment is new, and holds nothing but the package and what it depends on: with the newest versions there are, and with the oldest that pyproject.toml
allows. Needs `pip install build`. What was built stays in dist/.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = ("numpy", "scipy", "llvmlite")


def run(*command: object, cwd: Path | None = None) -> None:
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, cwd=cwd)


def oldest() -> list[str]:
    """The oldest versions of what matters, as requirements."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", text) for text in wanted]
    # ==2.1.* and not ==2.1: the first of a series may lack a wheel for this Python
    return [f"{m[1]}=={m[2]}.*" for m in found if m and m[1] in ALWAYS]


def check(package: Path, requirements: list[str]) -> None:
    """Install a package and run the smoke test."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "Scripts" if sys.platform == "win32" else "bin", "python")
        run(python, "-m", "pip", "install", "--quiet", package, *requirements)
        script = Path(folder, "smoke.py")
        script.write_text((ROOT / "tools" / "smoke.py").read_text())
        run(python, script, "--installed", cwd=Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the wheel with the newest dependencies alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
        (wheel,) = Path(folder).glob("*.whl")
        (sdist,) = Path(folder).glob("*.tar.gz")
        check(wheel, [])
        if not options.quick:
            check(wheel, oldest())
            check(sdist, [])
        dist = ROOT / "dist"
        dist.mkdir(exist_ok=True)
        for package in (wheel, sdist):
            (dist / package.name).write_bytes(package.read_bytes())
            print("built", dist / package.name)


if __name__ == "__main__":
    main()

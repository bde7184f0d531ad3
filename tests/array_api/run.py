"""The official suite of the array API standard, on `sparsejax.numpy`: `python -m tests.array_api.run [--mode dense|sparse] [--examples N]`.

The suite (data-apis/array-api-tests) is looked for in $ARRAY_API_TESTS and beside the repository; without it nothing is run, and a line
says so. In the mode "sparse" every creation function gives sparse arrays (`sparse_creation`). Failures that are known have a line and a
reason in `xfails.txt`, those of sparse arrays alone in `xfails_sparse.txt`; any other one makes the command fail.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODULES = {"dense": "sparsejax.numpy", "sparse": "tests.array_api.sparse_creation"}
LISTS = {"dense": ["xfails.txt"], "sparse": ["xfails.txt", "xfails_sparse.txt"]}


def suite():
    """The folder of the suite, or None."""
    places = [os.environ.get("ARRAY_API_TESTS"), ROOT.parent / "shared" / "suites" / "array-api-tests"]
    return next((Path(p) for p in places if p and (Path(p) / "array_api_tests").is_dir()), None)


def known(mode):
    """The tests that are known to fail."""
    lines = [line.strip() for name in LISTS[mode] for line in (HERE / name).read_text().splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def run(mode, folder, examples, options=()):
    """The exit status of one run."""
    with tempfile.TemporaryDirectory() as scratch:
        xfails = Path(scratch) / "xfails.txt"
        xfails.write_text("\n".join(known(mode)))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(Path(scratch) / "hypothesis"),
            "ARRAY_API_TESTS_MODULE": MODULES[mode],
            "ARRAY_API_TESTS_VERSION": "2025.12",
            "ARRAY_API_TESTS_MAX_ARRAY_SIZE": "64",
        }
        command = [sys.executable, "-m", "pytest", "array_api_tests", "-q", "--tb=short", "-p", "no:cacheprovider"]
        command += ["-p", "tests.array_api.hypothesis_profile", "--disable-deadline", "--max-examples", str(examples)]
        command += ["--derandomize", "--xfails-file", str(xfails), *options]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=sorted(MODULES), action="append", help="one mode (default: both)")
    parser.add_argument("--examples", type=int, default=5, help="examples per test")
    arguments, rest = parser.parse_known_args()
    folder = suite()
    if folder is None:
        print("array API suite: skipped, there is none in $ARRAY_API_TESTS or ../shared/suites/array-api-tests")
        return 0
    return max(run(mode, folder, arguments.examples, rest) for mode in arguments.mode or MODULES)


if __name__ == "__main__":
    sys.exit(main())

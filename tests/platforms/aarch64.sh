#!/bin/sh
# Programs and tests on Linux for ARM (aarch64), emulated on another computer that runs Debian 12 or a later one.
#
#     tests/platforms/aarch64.sh [-d FOLDER] [COMMAND ...]
#
# Sets up FOLDER (default: one that is removed at the end) unless that is done: QEMU, Debian's Python for ARM and its libraries, the ARM
# wheels of what sparsejax and its tests need; 0.7 GB, a minute or two. Nothing outside FOLDER is changed, and no rights are needed.
# Then runs a command with that Python, at low priority; by default the smoke run, `python -m tests.platforms.programs`:
#
#     tests/platforms/aarch64.sh -d arm -m pytest -q tests/formats tests/threads
#
# Programs run some ten times as slowly as on the computer itself. VERSION is the Python that the release of Debian has.
set -eu

VERSION=${VERSION:-3.11}
REPOSITORY=$(cd "$(dirname "$0")/../.." && pwd)
FOLDER=
if [ "${1:-}" = -d ]; then
    mkdir -p "$2"
    FOLDER=$(cd "$2" && pwd)
    shift 2
fi
if [ -z "$FOLDER" ]; then
    FOLDER=$(mktemp -d)
    trap 'rm -rf "$FOLDER"' EXIT
fi
ROOT=$FOLDER/root
PYTHON=$ROOT/usr/bin/python$VERSION

# apt with lists of its own, so that neither rights nor a foreign architecture of this system are needed
fetched() { # ARCHITECTURE FOLDER PACKAGE...
    architecture=$1 into=$2
    shift 2
    state=$FOLDER/apt-$architecture
    mkdir -p "$state/lists/partial" "$state/archives/partial" "$state/packages"
    set -- -qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Sandbox::User= \
        -o Dir::State="$state" -o Dir::State::lists="$state/lists" -o Dir::State::status=/dev/null \
        -o Dir::Cache="$state" -- "$@"
    options=
    while [ "$1" != -- ]; do
        options="$options $1"
        shift
    done
    shift
    # shellcheck disable=SC2086
    (cd "$state/packages" && apt-get $options update && apt-get $options download "$@")
    for package in "$state"/packages/*.deb; do
        dpkg -x "$package" "$into"
    done
}

if [ ! -e "$FOLDER/ready" ]; then
    fetched amd64 "$FOLDER/qemu" qemu-user-static
    fetched arm64 "$ROOT" libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8 libssl3 libbz2-1.0 liblzma5 libsqlite3-0 \
        libuuid1 libncursesw6 libtinfo6 libreadline8 libcrypt1 libdb5.3 libnsl2 libtirpc3 tzdata \
        "python$VERSION-minimal" "libpython$VERSION-minimal" "libpython$VERSION-stdlib"
    # Tests start processes by `sys.executable`, which must be something that this computer runs
    mv "$PYTHON" "$PYTHON-emulated"
    cat >"$PYTHON" <<EOF
#!/bin/sh
exec "$FOLDER/qemu/usr/bin/qemu-aarch64-static" -L "$ROOT" -0 "$PYTHON" "$PYTHON-emulated" "\$@"
EOF
    chmod +x "$PYTHON"
    python3 -m pip install -q --target "$FOLDER/wheels" --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 \
        --only-binary=:all: --implementation cp --abi "cp$(echo "$VERSION" | tr -d .)" --python-version "$VERSION" \
        "numpy>=2.1" "scipy>=1.13" "llvmlite>=0.46" "cloudpickle>=3" "platformdirs>=4" "pytest>=8" "hypothesis>=6.100"
    touch "$FOLDER/ready"
fi

[ $# -gt 0 ] || set -- -m tests.platforms.programs
cd "$REPOSITORY"
export PYTHONPATH="$REPOSITORY:$FOLDER/wheels" PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1
export SPARSEJAX_TEST_OBJECTS="$FOLDER/objects" # compiling is most of the time
nice -n 10 "$PYTHON" "$@"

#!/usr/bin/env bash
# Runs the tests of the probe and of the stores with every torch and Python that can be had:
#
#   tests/matrix.sh [TEST ...]
#
# For each it builds an environment with the other versions as in constraints.txt (but for setuptools, of which some
# releases of torch want an older one), runs the tests (tests/probe and tests/store by default), and prints one line:
# Python, torch, seconds, pytest's summary. Most versions of torch come as CUDA builds of 2 to 5 GB, which run on CPUs;
# an environment is removed once its tests are over.
#
#   MATRIX_TORCH    versions of torch (those of `torches` below)
#   MATRIX_PYTHON   interpreters (python3.10 to python3.14, as far as they are installed)
#   MATRIX_FOLDER   where the environments and the logs lie; environments that are there already are used, and kept
set -u
torches="2.6.0 2.7.1 2.8.0 2.9.1 2.10.0 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0"
root=$(cd "$(dirname "$0")/.." && pwd)
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(tests/probe tests/store)
folder=${MATRIX_FOLDER:-$(mktemp -d /tmp/matrix-XXXXXX)}
mkdir -p "$folder"
# One that is only a shim of a version manager does not run.
pythons=${MATRIX_PYTHON:-$(for minor in 10 11 12 13 14; do "python3.$minor" -c "" 2> /dev/null && echo "python3.$minor"; done)}
failed=0

# Builds the environment $1 with the interpreter $2 and torch $3.
build() {
    "$2" -m venv "$1" && grep -v '^torch==\|^setuptools==' "$root/constraints.txt" > "$1/constraints.txt" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
            -c "$1/constraints.txt" "torch==$3" "$root[torch,dev]"
}

for python in $pythons; do
    for torch in ${MATRIX_TORCH:-$torches}; do
        name=$(basename "$python")-torch-$torch
        env=$folder/$name log=$folder/$name.log
        is_new=
        if [ ! -d "$env" ]; then
            is_new=1
            if ! build "$env" "$python" "$torch" > "$log" 2>&1; then
                echo "$(basename "$python"), torch $torch: cannot be installed: $(grep -v WARNING "$log" | tail -1)"
                rm -rf "$env"
                continue
            fi
        fi
        began=$SECONDS
        # The sources of this tree, whatever the environment has.
        (cd "$root" && PYTHONPATH=$root "$env/bin/python" -m pytest "${tests[@]}" -p no:cacheprovider) > "$log" 2>&1 ||
            failed=1
        echo "$(basename "$python"), torch $torch: $((SECONDS - began)) s, $(tail -1 "$log")"
        [ -z "$is_new" ] || rm -rf "$env"
    done
done
exit $failed

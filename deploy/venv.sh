#!/bin/sh
# Make or renew a virtual environment that holds exactly what a lock file names.
#
#   deploy/venv.sh DIRECTORY LOCK [PROJECT]
#
# PROJECT, if given, is installed editable, without build isolation: nothing that is not in the lock is downloaded.
# Needs python3 (3.11 or newer); uses uv when there is one. PYTHON names another interpreter.
set -eu

dir=$1 lock=$2 project=${3:-}

die() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

python=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if new_enough "$candidate"; then
        python=$(command -v "$candidate")
        break
    fi
done
if [ -z "$python" ]; then
    asked=${PYTHON:-python3}
    found=$({ "$asked" --version || echo missing; } 2>/dev/null)
    die "Python 3.11 or newer is needed, $asked is $found; name one: make PYTHON=/path/to/python3"
fi

uv=$(command -v uv || true)
[ -n "$uv" ] || "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$python cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv"

# What the tools have to say is read only when they fail: pip alone has a hundred lines for some configurations.
log=$(mktemp) ticker=
trap 'rm -f "$log"; [ -z "$ticker" ] || kill "$ticker" 2>/dev/null' EXIT
trap 'exit 130' INT TERM HUP
quietly() {
    "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        die "failed: $*"
    }
}

# On a slow line the download takes minutes: somebody who looks on is told that it goes on.
tell_time() {
    seconds=0
    while sleep 10 >/dev/null 2>&1; do  # what it leaves behind holds no pipe open
        seconds=$((seconds + 10))
        echo "perdure: still installing, $seconds s"
    done
}

venv=$dir/bin/python
usable() {
    new_enough "$venv" && { [ -n "$uv" ] || "$venv" -m pip --version >/dev/null 2>&1; }
}

if ! usable; then
    echo "perdure: making $dir with $("$python" --version)"
    if [ -n "$uv" ]; then
        quietly "$uv" venv --quiet --clear --python "$python" "$dir"
    else
        quietly "$python" -m venv --clear "$dir"
    fi
fi

installer=pip
[ -z "$uv" ] || installer=uv
echo "perdure: installing $(grep -c '==' "$lock") locked packages with $installer"
tell_time &
ticker=$!
if [ -n "$uv" ]; then
    quietly "$uv" pip sync --quiet --python "$venv" --require-hashes --no-build --compile-bytecode "$lock"
else
    quietly "$venv" -m pip install -q --disable-pip-version-check --no-input \
        --require-hashes --no-deps --only-binary :all: -r "$lock"
fi

if [ -n "$project" ]; then
    if [ -n "$uv" ]; then
        quietly "$uv" pip install --quiet --python "$venv" --no-deps --no-build-isolation --offline -e "$project"
    else
        quietly "$venv" -m pip install -q --disable-pip-version-check --no-input \
            --no-deps --no-build-isolation --no-index -e "$project"
    fi
fi
kill "$ticker" 2>/dev/null || true
ticker=
echo "perdure: $dir is ready"

#!/bin/sh
# Install the agents that tests and the demo run for real: exactly what deploy/agents/package-lock.json names.
#
#   deploy/agents.sh DIRECTORY
#
# They are their makers' own binaries (DIRECTORY/bin/claude, DIRECTORY/bin/codex): no Node runs them, and no script of a
# package runs here. With Node 20 the packages that wrap them would silently install older versions.
set -eu

dir=$1
here=$(dirname "$0")/agents

die() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

[ "$(uname -s)" = Linux ] || die "the agents of the tests are pinned for Linux; elsewhere install them by yourself"
case $(uname -m) in
x86_64) platform=linux-x64 target=x86_64-unknown-linux-musl ;;
aarch64 | arm64) platform=linux-arm64 target=aarch64-unknown-linux-musl ;;
*) die "no agents are pinned for $(uname -m)" ;;
esac

claude=node_modules/claude-code-$platform/claude
codex=node_modules/codex-$platform/vendor/$target/bin/codex
if ! { cmp -s "$here/package-lock.json" "$dir/installed.json" && [ -x "$dir/$claude" ] && [ -x "$dir/$codex" ]; }; then
    command -v npm >/dev/null 2>&1 || die "npm is needed to fetch the agents; on Debian and Ubuntu: apt-get install npm"
    mkdir -p "$dir"
    rm -f "$dir/installed.json"
    cp "$here/package.json" "$here/package-lock.json" "$dir/"
    echo "perdure: fetching Claude Code and Codex, some 800 MB on disk"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    (cd "$dir" && npm ci --ignore-scripts --engine-strict --no-audit --no-fund) >"$log" 2>&1 </dev/null || {
        tail -n 5 "$log" >&2
        die "the agents could not be fetched"
    }
    [ -x "$dir/$claude" ] && [ -x "$dir/$codex" ] || die "npm installed no agent for $platform"
    mkdir -p "$dir/bin"
    ln -sf "../$claude" "$dir/bin/claude"
    ln -sf "../$codex" "$dir/bin/codex"
    mv "$dir/package-lock.json" "$dir/installed.json"
fi
echo "perdure: $("$dir/bin/claude" --version), $("$dir/bin/codex" --version)"

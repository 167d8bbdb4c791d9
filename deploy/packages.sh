#!/bin/sh
# Install programs that are not here, where that is possible without asking: as root, or with a sudo that wants no
# password, on Debian and Ubuntu. Elsewhere it does nothing and says nothing: whoever needs a program says so.
#
#   deploy/packages.sh PROGRAM=PACKAGE ...
set -u

wanted= named=
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null 2>&1 && continue
    wanted="$wanted ${pair#*=}"
    named="$named ${pair%%=*}"
done
[ -n "$wanted" ] && command -v apt-get >/dev/null 2>&1 || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null || exit 0
    as_root="sudo -n"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "perdure: installing$wanted"
{
    $as_root apt-get update -qq &&
        # shellcheck disable=SC2086 # several words each
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted
} >"$log" 2>&1 </dev/null || {
    tail -n 3 "$log" >&2
    echo "perdure: not installed:$named" >&2
}

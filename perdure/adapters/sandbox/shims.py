"""Starters before pyenv's shims on a command's PATH: each is a small script that starts the program itself where a
version file names one installed version, and leaves all else to the shim, which starts some hundred programs to find
out the same. Used by the sandboxes here.

A starter decides inside, at each start, by the directory it is started in: what a command does with its version files
has the effect that it has outside, and nothing of it is remembered.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import tempfile
from pathlib import Path

from perdure.adapters.sandbox.environment import Binds
from perdure.adapters.sandbox.host_files import remove_outdated
from perdure.adapters.system.directories import discard
from perdure.adapters.system.files import read_regular_file, write_whole
from perdure.adapters.system.home import Home

_SHIM = b'pyenv" exec "$program"'
"""In every shim of pyenv, wherever pyenv itself is installed."""

_SHIM_BYTES = 4096
"""Bytes of a file that are looked into for _SHIM: a shim has 400."""

_INSTALLERS = ("pip", "easy_install")
"""Programs after which pyenv makes shims for what they have installed."""

_KNOWN_HOOKS = {"pip-rehash.bash", "conda.bash", "python-config.bash", "system-site-packages.bash"}
"""Hooks of pyenv and pyenv-virtualenv: they change nothing where the version has the program, installers aside."""

_STARTER = """#!/bin/sh
root=ROOT
program=${0##*/}
version=$PYENV_VERSION
if [ -z "$version" ]; then
    directory=$PWD
    until [ -f "$directory/.python-version" ] || [ -z "$directory" ]; do directory=${directory%/*}; done
    file=$directory/.python-version
    [ -f "$file" ] || file=$root/version
    if [ -r "$file" ]; then
        while read -r word _ || [ -n "$word" ]; do
            case $word in '' | '#'*) ;; *) version=${version:+$version:}$word ;; esac
        done <"$file"
    fi
fi
case $version in
    '' | .* | *[!0-9A-Za-z._+-]*) version=: ;;
    *[!0-9.]*) ;;
    *)
        if [ ! -d "$root/versions/$version" ]; then
            match=
            for path in "$root/versions/$version"[-.]*; do match=${match:+$match:}${path##*/}; done
            case $match in *[!0-9.]*) version=: ;; *) version=$match ;; esac
        fi
        ;;
esac
case " $* " in *" -m pip "*) version=: ;; esac
start=$root/versions/$version/bin/$program
if [ -z "$PYENV_DIR" ] && [ "$version" != : ] && [ -x "$start" ] && [ ! -d "$start" ]; then
    export PYENV_ROOT="$root" PYENV_VERSION="$version" PATH="${start%/*}:$PATH"
    exec "$start" "$@"
fi
path=:$PATH:
PATH=
while [ "$path" != : ]; do
    path=${path#:}
    entry=${path%%:*}
    path=${path#"$entry"}
    [ "$entry" = "${0%/*}" ] || PATH=${PATH:+$PATH:}$entry
done
exec "$root/shims/$program" "$@"
"""
"""A starter for the pyenv in ROOT, of what any sh has built in. `:` is no version: the shim decides, on a PATH without
starters, one of which it would take for the system's program and start without end."""


def put_starters_first(home: Home, binds: Binds) -> Binds:
    """Return the binds with a directory of starters before each directory of pyenv's shims on the path, shown
    read-only; made in `home` where it is missing. Blocks for a millisecond."""
    path, prefixes = list[str](), list(binds.prefixes)
    for entry in binds.path:
        if (starters := _ensure_starters(home.root / "sandbox" / "starters", Path(entry))) is not None:
            path.append(str(starters / "bin"))
            prefixes.append(str(starters))
        path.append(entry)
    return binds.model_copy(update={"path": tuple(path), "prefixes": tuple(prefixes)})


def _ensure_starters(parent: Path, shims: Path) -> Path | None:
    """Return the directory of starters for a directory of shims, as its names are now; make it where it is missing, and
    remove old ones then. None: it is not pyenv's, or has hooks that may decide otherwise."""
    root = shims.parent
    if shims.name != "shims" or not (root / "versions").is_dir() or _has_unknown_hooks(root):
        return None
    try:
        key = repr([_STARTER, str(shims), shims.stat().st_mtime_ns])  # pyenv replaces shims, it never writes in them
        target = parent / hashlib.sha256(os.fsencode(key)).hexdigest()[:16]
        if target.is_dir():
            os.utime(target)  # outdated is what nobody has used for long
            return target
        names = [file.name for file in shims.iterdir() if not file.name.startswith(_INSTALLERS) and _is_shim(file)]
        if not names:
            return None
        parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=parent))
        try:
            script = _STARTER.replace("ROOT", shlex.quote(str(root)), 1)
            # Synced: what a power cut leaves empty would be a program that does nothing and succeeds.
            write_whole(starter := unfinished / "starter", os.fsencode(script))
            for path in (unfinished, starter):
                path.chmod(0o755)
            (unfinished / "bin").mkdir()
            for name in names:
                (unfinished / "bin" / name).symlink_to("../starter")
            with contextlib.suppress(OSError):  # another process made it first
                unfinished.rename(target)
        finally:
            if unfinished.exists():
                discard(unfinished)
        remove_outdated(parent, target)
        return target if target.is_dir() else None
    except OSError:
        return None  # the shims do it, slowly


def _has_unknown_hooks(root: Path) -> bool:
    """Return whether this pyenv has hooks that may choose another program than its version files."""
    hooks = [
        hook.name
        for directory in (root / "pyenv.d", *root.glob("plugins/*/etc/pyenv.d"))
        for command in ("exec", "which", "version-name")
        for hook in directory.glob(f"{command}/*.bash")
    ]
    return not _KNOWN_HOOKS.issuperset(hooks)


def _is_shim(file: Path) -> bool:
    """Return whether a file is a shim of pyenv."""
    return _SHIM in (read_regular_file(file, _SHIM_BYTES) or b"")

"""Git in a repository that is not the engine's own: a person's checkout, or whatever somebody has put in its place.
Intake (`git.target`), set-up, the local forge and the command line look at such repositories through it, and pushes to
one on this machine get their options here.

The plainest commands start programs that the repository's own configuration names: `status` a filter, a search for a
missing object a transport. A repository that comes by `git clone` brings no such configuration; one that was unpacked,
or lies as a folder inside a clone, does. So every key that names a program is blanked for our commands, no command here
may speak to a remote, and a bare repository counts only where it is named itself and lies in no other one.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.adapters.git.command import Git, GitError
from perdure.adapters.git.credentials import main_line
from perdure.models.errors import BadInput
from perdure.text import is_text, shell_word

BLANKED_CHARS = 64 * 1024
"""The most characters of the keys by which a repository's own configuration names programs: they go into git's
environment, which holds no more than 128 KiB in one piece. A checkout with git-lfs has three such keys."""


_STARTS = re.compile(
    r"""(?ix) ^(?:
      filter\..*\.(?:clean|smudge|process) | diff\.external | diff\..*\.(?:command|textconv) | merge\..*\.driver
    | (?:difftool|mergetool|browser|man|guitool|trailer|tar|hook)\..*\.(?:cmd|command|path)
    | core\.(?:alternaterefscommand|askpass|editor|fsmonitor|gitproxy|hookspath|pager|sshcommand) | pager\..*
    | credential\.(?:.*\.)?helper | remote\..*\.(?:uploadpack|receivepack|vcs|promisor|partialclonefilter)
    | extensions\.partialclone | gpg\.(?:.*\.)?(?:program|defaultkeycommand) | gc\.recentobjectshook
    | uploadpack\.packobjectshook | interactive\.difffilter | sequence\.editor | sendemail\..*cmd
    | submodule\..*\.update
    | (?:imap|instaweb|web|gui|merge|diff)\.(?:tunnel|httpd|browser|guitool|tool) | alias\..*
    )$"""
)
"""A pattern for every key of git-config(1) whose value is a program, or makes git start one. SETTINGS of git's other
commands cover some of them anyway."""

_OFF = {"promisor": "false", "fsmonitor": "false", "hookspath": "/dev/null", "update": "none"}
"""The value a key is set to, by the last part of its name. All others are set to nothing, which git takes for no
program."""

_YES = ("true", "yes", "on", "1")
"""Values that git takes for true; it takes a key without a value for true, too."""

_FLAGS = re.compile(r"(?i)^filter\.(.*)\.(?:clean|smudge|process)$")

_SEALED = (("GIT_ALLOW_PROTOCOL", "none"), ("GIT_NO_LAZY_FETCH", "1"), ("GIT_PAGER", "cat"), ("GIT_EDITOR", ":"))
"""Environment that stops git from speaking to a remote, even for a missing object, and from starting a pager or
editor."""


_CONFIG_FILE = re.compile(r"(?m)\bconfig .*in file '?([^'\n]+?)'?(?: at line \d+|: .*)?$|unable to access '(.*)'")
"""The file in git's complaint about a configuration."""

_RECEIVING = " ".join(
    f"-c {setting}"
    for setting in (
        *("core.hooksPath=/dev/null", "core.fsmonitor=false", "receive.autogc=false", "gc.recentObjectsHook="),
    )
)


@dataclass(frozen=True)
class LocalRepository:
    """A repository on this machine.

    git_dir  what all its worktrees share
    root     the working tree, None for a bare repository
    git      for commands there that start nothing of its own
    """

    git_dir: Path
    root: Path | None
    git: Git


def foreign_git(path: Path, git_dir: Path | None = None) -> Git:
    """Return the owner's git at work in `path`, with everything blanked that the repository there would start.

    `git_dir`: a bare repository that was named itself; without it git accepts no bare one. Raises BadInput where the
    configuration there names too many programs.
    """
    return _foreign_git_and_bare(path, git_dir)[0]


def _foreign_git_and_bare(path: Path, git_dir: Path | None = None) -> tuple[Git, bool]:
    """Return the git of `foreign_git`, and True where the configuration there says that the repository is bare. Reads
    that configuration; raises BadInput where it names too many programs."""
    sealed = Git(git_dir=git_dir, cwd=path, as_owner=True, variables=_SEALED)
    output = sealed.execute("config", "--list", "--show-scope", "-z", ok=(0, 128)).names
    settings = [(scope, *setting.partition("\n")) for scope, setting in zip(output[::2], output[1::2], strict=True)]
    own_keys = {key for scope, key, _, _ in settings if scope in ("local", "worktree")}
    bare_values = [
        value.lower() in _YES if equals else True for _, key, equals, value in settings if key == "core.bare"
    ]
    blanked = {key: _OFF.get(key.rpartition(".")[2].lower(), "") for key in sorted(own_keys) if _STARTS.match(key)}
    if sum(map(len, blanked)) > BLANKED_CHARS:
        raise BadInput(
            f"the repository's own configuration names programs by more than {BLANKED_CHARS // 1024} KiB of keys",
            where=str(path),
            fix="remove from its .git/config what you did not put there",
        )
    blanked |= {f"filter.{match[1]}.required": "false" for key in blanked if (match := _FLAGS.match(key))}
    numbered = [(f"GIT_CONFIG_KEY_{number}", key) for number, key in enumerate(blanked)]
    numbered += [(f"GIT_CONFIG_VALUE_{number}", value) for number, value in enumerate(blanked.values())]
    variables = (*_SEALED, *numbered, ("GIT_CONFIG_COUNT", str(len(blanked))))
    return replace(sealed, variables=variables), bool(bare_values) and bare_values[-1]


def find_repository(path: Path) -> LocalRepository:
    """Find the repository whose working tree a directory is in, or the bare one that the directory is, and return it.

    Raises GitError when there is none; BadInput for a bare one that lies inside a checkout, for one whose core.worktree
    leads elsewhere, whose path cannot be written down (not UTF-8, or with a line end), or whose configuration names too
    many programs.
    """
    if not is_text(where := str(path.absolute())) or set(where) & {"\n", "\r"}:
        raise BadInput(
            "the repository's path is not UTF-8 text, or has the end of a line in it",
            where=ascii(where),
            fix="rename the directory",
        )
    if path.name == ".git" and path.is_dir():
        path = path.parent
    if _looks_bare(path):
        git, bare = _foreign_git_and_bare(path, path)
        if bare:
            _check_not_nested(path)
            return LocalRepository(path.resolve(), None, git)
    git = foreign_git(path)
    output = git.text("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir")
    root, common = map(Path, output.split("\n", 1))
    if not (root / ".git").exists():  # core.worktree: anybody's directory would be ours to look at
        raise BadInput(
            "the repository's core.worktree leads elsewhere", where=str(path), fix="git config --unset core.worktree"
        )
    return LocalRepository(common, root, git)


def no_repository_error(path: Path, error: GitError) -> BadInput:
    """Return the error for people about a path at which find_repository has found none.

    Only where git is sure that nothing is there, the advice is to make a repository; else it is git's own line, with
    the file of a configuration that it cannot read.
    """
    if "dubious ownership" in error.stderr:
        fix = f"git config --global --add safe.directory {shell_word(path)}"
        return BadInput("this repository belongs to another user", where=str(path), fix=fix)
    begun = any(os.path.lexists(above / ".git") for above in (path.absolute(), *path.absolute().parents))
    if "not a git repository (or any" in error.stderr and not begun:
        fix = "run this inside a repository, or: git init && git add -A && git commit -m first"
        return BadInput("this is not a git repository", where=str(path), fix=fix)
    file = _CONFIG_FILE.search(error.stderr)
    where = file[1] or file[2] if file else str(path)
    fix = "correct this file" if file else f"make this work first: git -C {shell_word(path)} status"
    return BadInput(f"git cannot look at this repository: {main_line(error.stderr)}", where=where, fix=fix)


def receive_pack_options(url: str, *, unborn: bool = False) -> tuple[str, ...]:
    """Return options for a push to `url`, with which the git that receives the commits in a checkout on this machine
    starts no program that the checkout's configuration names. Empty for other addresses, and for a bare repository; a
    path where no repository can be found counts as a checkout.

    A bare repository is a server: its hooks are its owner's rules, and run as at any other push. `unborn` allows to
    make the branch that is checked out there, for it has no commit yet; no file is touched.
    """
    if not Path(url).is_absolute():
        return ()
    with contextlib.suppress(GitError, BadInput):  # it has become something else since we looked: nothing starts there
        if find_repository(Path(url)).root is None:
            return ()
    # with updateInstead it checks out, by the checkout's own filters
    current = f"-c receive.denyCurrentBranch={'ignore' if unborn else 'refuse'}"
    return (f"--receive-pack=git {_RECEIVING} {current} receive-pack",)


def _looks_bare(path: Path) -> bool:
    """Return True where a directory has what a bare repository has, and is no checkout's `.git`."""
    return (
        (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir() and path.name != ".git"
    )


def _check_not_nested(path: Path) -> None:
    """Raise BadInput where a bare repository lies inside a checkout: whoever clones a repository gets its folders, and
    such a folder brings its own configuration along. Do nothing where no directory above is a repository to git."""
    if not any(os.path.lexists(above / ".git") for above in path.resolve().parents):  # then git finds none around it
        return
    try:
        outer = foreign_git(path.resolve().parent).text("rev-parse", "--show-toplevel")
    except GitError:
        return
    raise BadInput(
        f"{path.name} is a bare repository inside the checkout {outer}, and may have come with it",
        where=str(path),
        fix="name the checkout itself, or move this repository out of it",
    )

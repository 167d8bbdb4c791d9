"""Git in a repository that is not ours: a person's checkout, or whatever somebody has put in its place.

What its own configuration names is started by the plainest of commands: a filter by `status`, a transport by a look
for an object that is missing. A repository comes by `git clone` without such words; one that was unpacked, or lies as a
folder inside a clone, brings them along. So every key that names a program is blanked for our commands, no command
here may speak to a remote, and a bare repository counts only where it is named itself and lies in no other one.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.adapters.git.door import Git, GitError
from perdure.models.errors import BadInput
from perdure.text import is_text

BLANKED_CHARS = 64 * 1024
"""Of the keys that a repository's own configuration names programs by: each goes into git's environment, which holds no
more than 128 KiB in one piece. A checkout with git-lfs has three."""


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
"""Every key of git-config(1) whose value is started, or makes something be started. SETTINGS of the door hold for some
of them anyway."""

_OFF = {"promisor": "false", "fsmonitor": "false", "hookspath": "/dev/null", "update": "none"}
"""By the last part of a key, what it is set to; all others to nothing, which git takes for no program."""

_YES = ("true", "yes", "on", "1")
"""Values by which git takes a setting for true; one without a value is, too."""

_FLAGS = re.compile(r"(?i)^filter\.(.*)\.(?:clean|smudge|process)$")

_SEALED = (("GIT_ALLOW_PROTOCOL", "none"), ("GIT_NO_LAZY_FETCH", "1"), ("GIT_PAGER", "cat"), ("GIT_EDITOR", ":"))
"""Nothing of what we ask of somebody's repository needs a remote; a missing object would be asked for there."""


_RECEIVING = " ".join(
    f"-c {setting}"
    for setting in (
        *("core.hooksPath=/dev/null", "core.fsmonitor=false", "receive.autogc=false", "gc.recentObjectsHook="),
    )
)


@dataclass(frozen=True)
class LocalRepository:
    """A repository on this machine. `git_dir`: what all its worktrees share; `root`: the working tree, None when bare;
    `git`: for commands there that start nothing of its own."""

    git_dir: Path
    root: Path | None
    git: Git


def visiting(path: Path, git_dir: Path | None = None) -> Git:
    """The owner's git at work in `path`, with everything blanked that the repository there would start.

    `git_dir`: of a bare repository that was named itself; without it none is looked for.
    """
    return _visited(path, git_dir)[0]


def _visited(path: Path, git_dir: Path | None = None) -> tuple[Git, bool]:
    """Likewise, and True where the configuration there says that it is bare."""
    sealed = Git(git_dir=git_dir, cwd=path, as_owner=True, variables=_SEALED)
    told = sealed.run("config", "--list", "--show-scope", "-z", ok=(0, 128)).names
    said = [(scope, *setting.partition("\n")) for scope, setting in zip(told[::2], told[1::2], strict=True)]
    theirs = {key for scope, key, _, _ in said if scope in ("local", "worktree")}
    bare = [value.lower() in _YES if equals else True for _, key, equals, value in said if key == "core.bare"]
    blanked = {key: _OFF.get(key.rpartition(".")[2].lower(), "") for key in sorted(theirs) if _STARTS.match(key)}
    if sum(map(len, blanked)) > BLANKED_CHARS:
        raise BadInput(
            f"the repository's own configuration names programs by more than {BLANKED_CHARS // 1024} KiB of keys",
            where=str(path),
            fix="remove from its .git/config what you did not put there",
        )
    blanked |= {f"filter.{found[1]}.required": "false" for key in blanked if (found := _FLAGS.match(key))}
    numbered = [(f"GIT_CONFIG_KEY_{number}", key) for number, key in enumerate(blanked)]
    numbered += [(f"GIT_CONFIG_VALUE_{number}", value) for number, value in enumerate(blanked.values())]
    variables = (*_SEALED, *numbered, ("GIT_CONFIG_COUNT", str(len(blanked))))
    return replace(sealed, variables=variables), bool(bare) and bare[-1]


def find(path: Path) -> LocalRepository:
    """The repository whose working tree a directory is in, or the bare one that it is.

    Raises GitError when there is none, BadInput for one that lies inside another repository, or that would have us work
    in a directory which does not belong to it, or whose path cannot be written down.
    """
    if not is_text(where := str(path.absolute())) or set(where) & {"\n", "\r"}:
        raise BadInput(
            "the repository's path is not UTF-8 text, or has the end of a line in it",
            where=ascii(where),
            fix="rename the directory",
        )
    if _looks_bare(path):
        git, bare = _visited(path, path)
        if bare:
            _check_alone(path)
            return LocalRepository(path.resolve(), None, git)
    git = visiting(path)
    told = git.text("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir")
    root, common = map(Path, told.split("\n", 1))
    if not (root / ".git").exists():  # core.worktree: anybody's directory would be ours to look at
        raise BadInput(
            "the repository's core.worktree leads elsewhere", where=str(path), fix="git config --unset core.worktree"
        )
    return LocalRepository(common, root, git)


def receiving(url: str, *, unborn: bool = False) -> tuple[str, ...]:
    """Options for a push: what takes the commits in a checkout on this machine starts nothing of its own either.

    A bare repository is a server: its hooks are its owner's rules, and run as at any other push.
    `unborn`: the branch that is checked out there may be made, for it has no commit yet; no file is touched.
    """
    if not Path(url).is_absolute():
        return ()
    with contextlib.suppress(GitError, BadInput):  # it has become something else since we looked: nothing starts there
        if find(Path(url)).root is None:
            return ()
    # with updateInstead it checks out, by the checkout's own filters
    current = f"-c receive.denyCurrentBranch={'ignore' if unborn else 'refuse'}"
    return (f"--receive-pack=git {_RECEIVING} {current} receive-pack",)


def _looks_bare(path: Path) -> bool:
    return (
        (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir() and path.name != ".git"
    )


def _check_alone(path: Path) -> None:
    """Whoever clones a repository gets its folders: one that is a bare repository brings its configuration along."""
    if not any(os.path.lexists(above / ".git") for above in path.resolve().parents):  # then git finds none around it
        return
    try:
        around = visiting(path.resolve().parent).text("rev-parse", "--show-toplevel")
    except GitError:
        return
    raise BadInput(
        f"{path.name} is a bare repository inside the checkout {around}, and may have come with it",
        where=str(path),
        fix="name the checkout itself: --repo .., or move this repository out of it",
    )

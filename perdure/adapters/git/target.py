"""Intake: the repository that a person named by a path, an address or `owner/name`, found and checked before anything
is made or paid for; and what in the person's checkout will not be part of a delivery. Used by the command line, and by
`repository.terms` for the contracts that the worker makes."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from perdure.adapters.git.command import Git, GitError, redact
from perdure.adapters.git.credentials import NO_KEYS, Keyring
from perdure.adapters.git.foreign_repository import find_repository, foreign_git, no_repository_error
from perdure.adapters.git.remote import FIRST_COMMIT, Heads, find_first_branch, list_refs_but_head, remote_heads
from perdure.models import ids
from perdure.models.errors import BadInput, ForgeRefused, ForgeUnavailable
from perdure.text import format_count, shell_word

_FIELD = "repository"
"""The place of what is wrong with a repository's name: the field of a request."""

_SCHEMES = ("https", "http", "ssh", "git", "file")
ELSEWHERE = Path(os.devnull)
"""A `cwd` in which nothing is: then no name is a path by chance."""

_OWNER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*/(?!\.{1,2}$)[\w.-]+")
_SCP_LIKE = re.compile(r"(?:[\w.+~-]+@)?\[?[\w.:-]+\]?:(?!//).+")
_SECRET = re.compile(r"://(?:[^/@\s]*:[^/@\s]+|(?:gh[pousr]_|github_pat_|glpat-)[^/@\s]*)@")


@dataclass(frozen=True)
class TargetRepository:
    """The repository a delivery works in.

    url       what is fetched from and pushed to: the origin of a checkout that has one, else the absolute path itself
    name      short name of the repository
    checkout  the submitter's working tree, when a path with one was named
    heads     the remote's branches, just fetched; of an empty repository the one that it begins with, at
              FIRST_COMMIT, which is pushed there before the first delivery's own branch
    empty     the repository has no branch, no tag, nothing
    """

    url: str
    name: str
    checkout: Path | None = None
    heads: Heads = field(default_factory=lambda: Heads(None))
    empty: bool = False

    def base_branch(self, requested: str | None = None, *, field: str = "base") -> tuple[str, str]:
        """Return (base branch, its commit): the requested branch, else the default one.

        Raises BadInput, which names `field` (where the request came from: its field, or an option), when there is no
        such branch, with the nearest one's name, or none was requested and there is no default branch.
        """
        where = f"{field}; {self.url}"
        name = requested or self.heads.default
        if name is None:
            branches = ", ".join(sorted(self.heads.branches)[:5])
            raise BadInput("the repository's HEAD names no branch", where=where, fix=f"name one of: {branches}")
        if name not in self.heads.branches:
            close = difflib.get_close_matches(name, self.heads.branches, n=1, cutoff=0.4)
            nearest = close[0] if close else self.heads.default or sorted(self.heads.branches)[0]
            raise BadInput(f"there is no branch {name!r}", where=where, fix=f"did you mean {nearest}?")
        return name, self.heads.branches[name]


def resolve_repository(repository: str, cwd: Path, keys: Keyring = NO_KEYS) -> TargetRepository:
    """Find the repository that a person means, as `locate_repository` does, for a caller who can ask that person: a
    remote that does not answer raises BadInput too, and errors name the option --repo, not the request's field."""
    try:
        return locate_repository(repository, cwd, keys)
    except ForgeUnavailable as error:
        raise BadInput(error.what, where=error.where, fix=error.fix) from error
    except BadInput as error:
        if error.where != _FIELD:
            raise
        raise BadInput(error.what, where="--repo", fix=error.fix) from error


def locate_repository(repository: str, cwd: Path, keys: Keyring = NO_KEYS) -> TargetRepository:
    """Find the repository that a path (relative to `cwd`), `file://`, `http(s)://`, `ssh://` or `user@host:path` means,
    ask its remote for the branches and return it. Of a checkout it is the origin.

    `owner/name` that is no path means a repository on the keys' home server: github.com unless configured. Raises
    BadInput when it is not a repository, the remote refuses, or the name is unsafe (a remote helper `ext::`, a leading
    dash, a password); also for an empty one that does not say what its first branch is called, or whose checkout holds
    what nobody has committed and pushed. Raises ForgeUnavailable when the remote does not answer now.
    """
    _check_form(repository)
    if _is_url(repository, cwd):
        return _ask_remote(repository, None, keys)
    path = Path(cwd, os.path.expanduser(repository))
    if _OWNER_NAME.fullmatch(repository) and not path.exists():
        return _ask_remote(f"{keys.home_server()}/{repository.removesuffix('.git')}", None, keys, typed_name=repository)
    url, checkout = _find_origin(path, repository)
    return _ask_remote(url, checkout, keys)


def local_path(repository: str) -> Path | None:
    """Return the path of this host that an address names; None when it names a server. Only its form counts: the disk
    is not looked at.

    What may be either (`owner/name`, `host:path`) is taken for a server's, as `resolve_repository` does with ELSEWHERE
    as `cwd`.
    """
    scheme, separator, rest = repository.partition("://")
    if separator:
        return Path(rest) if scheme.lower() == "file" else None
    return None if _OWNER_NAME.fullmatch(repository) or _SCP_LIKE.fullmatch(repository) else Path(repository)


def find_git_paths(path: Path) -> Iterator[Path]:
    """Yield the real paths that git reads for the repository at or above a path of this host: its checkout, its git
    directory and the one that it shares, the object stores that it borrows from, and where links in any of these lead;
    each is looked at once the caller goes on. None where there is no repository. Raises OSError where one cannot be
    read."""

    def is_repository(place: Path) -> bool:
        """Return whether this is a checkout's top, or a git directory."""
        return os.path.lexists(place / ".git") or all(os.path.lexists(place / name) for name in ("HEAD", "objects"))

    pending, seen = [*filter(is_repository, (path, *path.parents))][:1], set[Path]()
    while pending:
        place = Path(os.path.realpath(pending.pop()))
        if place in seen:
            continue
        seen.add(place)
        yield place
        if os.path.lexists(place / ".git"):
            pending.append(place / ".git")
        elif place.is_file() and place.name == ".git":
            pending.append(place.parent / _read_line(place).removeprefix("gitdir:").strip())
        else:
            entries = (Path(root, name) for root, *names in os.walk(place) for name in chain(*names))
            pending += [entry for entry in entries if entry.is_symlink()]
            pending += [place / _read_line(place / "commondir")] if (place / "commondir").is_file() else []
            for store in (place, place / "objects"):
                alternates = store / "info" / "alternates"
                lines = alternates.read_text(errors="surrogateescape").splitlines() if alternates.is_file() else []
                # One in quotes is taken as it stands, and so for a path that is not there.
                pending += [store / line for line in lines if line and not line.startswith("#")]


def _read_line(file: Path) -> str:
    """Return the first line of a file of git's, which names a path."""
    with file.open(errors="surrogateescape") as stream:
        return stream.readline(4096).strip()


def check_checkout(source: str, url: str) -> Path:
    """Return the path of the checkout at `source`. Raises BadInput unless it is the top level of a checkout whose
    origin is `url`."""
    path = Path(source)
    if not path.is_absolute() or not path.is_dir():
        raise BadInput("source is no directory of this host", where=source, fix="leave it out, or name your checkout")
    origin, root = _find_origin(path, source)
    if root is None or not os.path.samefile(root, path):
        raise BadInput("source is not the top level of a git checkout", where=source, fix="name its top level")
    if origin != url:
        raise BadInput(
            "source is not a checkout of the repository", where=source, fix=f"its origin is {redact(origin)}"
        )
    return path


def list_not_included(
    checkout: Path, start_branch: str, base: str = "", heads: Mapping[str, str] | None = None
) -> list[str]:
    """List for a person what lies in the working tree that was named and is not part of the delivery: uncommitted
    files, commits that are not pushed, commits on another branch (`["3 uncommitted files", …]`). Empty when there is
    nothing.

    start_branch  the branch that the delivery begins with
    base          the branch that it is compared with, where that is another one
    heads         branches as the origin has them now: a clone may not know what was pushed from elsewhere
    """
    git = foreign_git(checkout)
    lines = []
    if changed := _count_changed_files(git):
        lines.append(format_count(changed, "uncommitted file"))
    branch = git.execute("symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1)).text
    has_origin = git.execute("config", "--get", "remote.origin.url", ok=(0, 1)).returncode == 0
    base, origin_heads = base or start_branch, heads or {}
    upstream = _upstream_name(git, branch) if has_origin else branch  # a branch may have another name here than there
    pushed = [
        "--remotes=origin",
        *_present_commits(git, [origin_heads.get(name, "") for name in (start_branch, base, upstream)]),
    ]
    own_branches = [start_branch, *([branch] if branch and upstream in (start_branch, base) else [])]
    for name in dict.fromkeys(own_branches if has_origin else []):
        unpushed = _count_commits_in(git, f"refs/heads/{name}", "--not", *pushed)
        lines += [f"{format_count(unpushed, 'unpushed commit')} on {name}"] if unpushed else []
    if branch and branch not in own_branches and upstream not in (start_branch, base):
        base_commits = _present_commits(
            git,
            [origin_heads.get(start_branch, ""), f"refs/remotes/origin/{start_branch}", f"refs/heads/{start_branch}"],
        )
        ahead = _count_commits_in(git, f"refs/heads/{branch}", "--not", *base_commits) if base_commits else 0
        lines += [f"{format_count(ahead, 'commit')} on {branch}, which is not the base"] if ahead else []
    return lines


def _present_commits(git: Git, commits: Iterable[str]) -> list[str]:
    """Return those of the commits that this clone has, by their hashes. Empty names are skipped."""
    object_names = "".join(f"{name}\n" for name in dict.fromkeys(commits) if name)
    lines = git.execute(
        "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=object_names.encode()
    ).text.splitlines()
    return [line.split()[0] for line in lines if line.endswith(" commit")]


def _upstream_name(git: Git, branch: str) -> str:
    """Return the name that a local branch has on the origin, by its upstream; its own name where it follows no branch
    of the remote `origin`."""
    remote = git.execute("config", "--get", f"branch.{branch}.remote", ok=(0, 1)).text
    merge = git.execute("config", "--get", f"branch.{branch}.merge", ok=(0, 1)).text
    return merge.removeprefix("refs/heads/") if remote == "origin" and merge else branch


def _check_form(repository: str) -> None:
    """Raise BadInput for the name of a repository that is empty, starts with a dash, has control characters, names a
    program to run (`ext::`) or carries a password."""
    if not repository.strip():
        raise BadInput("no repository was named", where=_FIELD, fix="name a path or an address")
    if repository.startswith("-"):
        raise BadInput(f"{repository!r} starts with a dash", where=_FIELD, fix=f"for a path: ./{repository}")
    if any(ord(character) < 32 or ord(character) == 127 for character in repository):
        raise BadInput("the repository's name contains control characters", where=_FIELD)
    if re.match(r"\w[\w+.-]*::", repository):
        helper = repository.partition("::")[0]
        raise BadInput(
            f"{helper}:: names a program to run, not a repository",
            where=redact(repository),
            fix=f"use a path or one of {', '.join(f'{scheme}://' for scheme in _SCHEMES)}",
        )
    if _SECRET.search(repository):
        raise BadInput(
            "the repository's URL carries a password, which would be kept in the delivery's history",
            where=redact(repository),
            fix="remove it from the URL and let a git credential helper give it: git config --global credential.helper",
        )


def _is_url(repository: str, cwd: Path) -> bool:
    """Return True for a URL, and for `user@host:path` where no such path exists. Raises BadInput for a scheme that is
    not supported and a host that starts with a dash."""
    scheme, separator, rest = repository.partition("://")
    if separator:
        if scheme.lower() not in _SCHEMES:
            raise BadInput(f"{scheme}:// is not spoken here", where=_FIELD, fix=f"use one of {', '.join(_SCHEMES)}")
        if rest.startswith("-") or "@-" in rest.partition("/")[0]:
            raise BadInput(f"the host in {redact(repository)!r} starts with a dash", where=_FIELD)
        return True
    if Path(cwd, os.path.expanduser(repository)).exists() or not _SCP_LIKE.fullmatch(repository):
        return False
    if repository.partition(":")[0].rpartition("@")[2].startswith("-"):
        raise BadInput(f"the host in {repository!r} starts with a dash", where=_FIELD)
    return True


def _find_origin(path: Path, shown_name: str) -> tuple[str, Path | None]:
    """Return (address, checkout) of the repository at a path: the checkout's origin, or the repository's own path
    without one or for a bare repository; and the top level of the checkout, None for a bare repository.

    Raises BadInput where nothing is there, it is no repository or another user's, `find_repository` refuses it, or its
    origin's address is unsafe or not supported.
    """
    if not path.exists():
        raise BadInput(f"there is no {shown_name}", where=str(path), fix="name a git repository by its path or address")
    try:
        place = find_repository(path if path.is_dir() else path.parent)
    except GitError as error:
        raise no_repository_error(path, error) from error
    git, bare, root = place.git, place.root is None, place.root or place.git_dir
    has_origin = git.execute("config", "--get", "remote.origin.url", ok=(0, 1)).returncode == 0
    if has_origin and not bare:  # a bare repository is where people push to: it is meant itself
        url = git.text("remote", "get-url", "origin")  # with the person's url.<base>.insteadOf
        _check_form(url)
        if not _is_url(url, root):
            url = os.path.normpath(root / os.path.expanduser(url))
    else:
        url = str(root)
    return url, None if bare else root


def _ask_remote(url: str, checkout: Path | None, keys: Keyring, typed_name: str = "") -> TargetRepository:
    """Ask a remote for its branches and return the repository with them; one without branches as `_empty_target` does.
    `typed_name` is the `owner/name` that was typed, for messages.

    Raises BadInput where the remote refuses or uses SHA-256 names, or it is empty and a person has to push a first
    commit; ForgeUnavailable where it does not answer.
    """
    try:
        heads = remote_heads(url, keys)
    except (ForgeRefused, ForgeUnavailable) as error:
        what = "the origin of this repository" if checkout is not None else "the repository"
        what = f"there is no directory {typed_name}, and {url}" if typed_name else what
        fix = error.fix or f"make this work first: git ls-remote {shell_word(redact(url))}"
        message = f"{what} cannot be reached: {error.what.partition(': ')[2] or error.what}"
        if isinstance(error, ForgeUnavailable):
            raise ForgeUnavailable(message, where=redact(url), fix=fix, unknown_host=error.unknown_host) from error
        raise BadInput(message, where=redact(url), fix=fix) from error
    if not heads.branches:
        return _empty_target(url, checkout, keys, heads)
    if any(len(sha) != 40 for sha in heads.branches.values()):
        raise BadInput("the repository uses SHA-256 object names", where=redact(url), fix="use one with SHA-1 names")
    return TargetRepository(url, ids.repository_name(url), checkout, heads)


def _empty_target(url: str, checkout: Path | None, keys: Keyring, heads: Heads) -> TargetRepository:
    """Return the repository without a branch as one that will begin with FIRST_COMMIT, after asking the remote for its
    other refs and the name of its first branch.

    Raises BadInput where the remote refuses that, or a person has to push a first commit: it has other refs, names no
    branch, or the checkout has commits or uncommitted files. Raises ForgeUnavailable where it does not answer.
    """
    push = "git push -u origin HEAD"
    fix = f"push a first commit: git commit --allow-empty -m first && {push}"
    try:
        others, name = list_refs_but_head(url, keys), find_first_branch(url, keys)
    except ForgeRefused as error:
        raise BadInput(f"the repository has no commits yet, and {error.what}", where=redact(url), fix=fix) from error
    if others:
        what = f"the repository has no branch, and is not empty: it has {others[0]}"
        raise BadInput(what, where=redact(url), fix=fix)
    if name is None:
        what = "the repository has no commits yet, and does not tell what its first branch is called"
        raise BadInput(what, where=redact(url), fix=fix)
    if checkout is not None:
        git = foreign_git(checkout)
        if commits := _count_commits_in(git, "--all"):
            what = f"the repository has no commits yet, and your checkout has {format_count(commits, 'commit')}"
            raise BadInput(what, where=str(checkout), fix=f"push what is to be built on: {push}")
        if changed := _count_changed_files(git):
            what = (
                f"the repository has no commits yet, and your checkout has {format_count(changed, 'uncommitted file')}"
            )
            commit = "git add -A && git commit -m first" + ("" if url == str(checkout) else f" && {push}")
            raise BadInput(what, where=str(checkout), fix=f"commit what is to be built on: {commit}")
    return TargetRepository(
        url, ids.repository_name(url), checkout, Heads(name, {name: FIRST_COMMIT}, heads.moved_to), empty=True
    )


def _count_changed_files(git: Git) -> int:
    """Return the number of paths with uncommitted changes, as `git status` lists them, untracked ones included."""
    return len(git.execute("status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all").names)


def _count_commits_in(git: Git, *range_: str) -> int:
    """Return the number of commits in a range as `git rev-list` takes it; 0 where git does not know it."""
    output = git.execute("rev-list", "--count", *range_, "--", ok=(0, 128))
    return int(output.text) if output.returncode == 0 else 0

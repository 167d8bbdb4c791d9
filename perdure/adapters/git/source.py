"""Intake: what a person named as the repository, checked before anything is made or paid for."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perdure.adapters.git.credentials import NO_KEYS, Keyring
from perdure.adapters.git.door import Git, GitError, redact
from perdure.adapters.git.first import FIRST_COMMIT, first_branch, refs_beside_branches
from perdure.adapters.git.remote import Heads, remote_heads
from perdure.adapters.git.visit import find, visiting
from perdure.models import ids
from perdure.models.errors import BadInput, ForgeRefused, ForgeUnavailable

_SCHEMES = ("https", "http", "ssh", "git", "file")
ELSEWHERE = Path(os.devnull)
"""As `cwd`, a directory in which nothing is: then no name is a path by chance."""

_OWNER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*/(?!\.{1,2}$)[\w.-]+")
_SCP_LIKE = re.compile(r"(?:[\w.+~-]+@)?\[?[\w.:-]+\]?:(?!//).+")
_SECRET = re.compile(r"://(?:[^/@\s]*:[^/@\s]+|(?:gh[pousr]_|github_pat_|glpat-)[^/@\s]*)@")


@dataclass(frozen=True)
class Target:
    """The repository a delivery works in.

    url       what is fetched from and pushed to: the origin of a checkout that has one, else the absolute path itself
    name      short name of the repository
    checkout  the submitter's working tree, when a path with one was named
    heads     the branches as the remote told them just now; of an empty repository the one that it begins with, at
              FIRST_COMMIT, which is pushed there before the first delivery's own branch
    empty     nothing is there: no branch, no tag, nothing
    """

    url: str
    name: str
    checkout: Path | None = None
    heads: Heads = field(default_factory=lambda: Heads(None))
    empty: bool = False

    def base(self, wanted: str | None = None) -> tuple[str, str]:
        """The base branch and its commit: the wanted one, else the default. Raises BadInput naming the nearest."""
        name = wanted or self.heads.default
        if name is None:
            known = ", ".join(sorted(self.heads.branches)[:5])
            raise BadInput("the repository's HEAD names no branch", where=self.url, fix=f"--base with one of: {known}")
        if name not in self.heads.branches:
            close = difflib.get_close_matches(name, self.heads.branches, n=1, cutoff=0.4)
            nearest = close[0] if close else self.heads.default or sorted(self.heads.branches)[0]
            raise BadInput(f"there is no branch {name!r}", where=self.url, fix=f"did you mean --base {nearest}?")
        return name, self.heads.branches[name]


def resolve(repository: str, cwd: Path, keys: Keyring = NO_KEYS) -> Target:
    """Find what a person means, who is there to look: as `locate`, and a remote that is away is BadInput too."""
    try:
        return locate(repository, cwd, keys)
    except ForgeUnavailable as error:
        raise BadInput(error.what, where=error.where, fix=error.fix) from error


def locate(repository: str, cwd: Path, keys: Keyring = NO_KEYS) -> Target:
    """Find what is meant by a path (relative to `cwd`), `file://`, `http(s)://`, `ssh://`, `user@host:path`.

    `owner/name` that is no path means a repository on the keys' home server: github.com unless configured.
    Raises BadInput: not a repository, refused, a remote helper (`ext::`), a leading dash, a password; an empty one
    that does not say what its first branch is called, or whose checkout holds what nobody has committed and pushed.
    ForgeUnavailable: it does not answer now.
    """
    _check_form(repository)
    if _is_url(repository, cwd):
        return _reach(repository, None, keys)
    path = Path(cwd, os.path.expanduser(repository))
    if _OWNER_NAME.fullmatch(repository) and not path.exists():
        return _reach(f"{keys.home_server()}/{repository.removesuffix('.git')}", None, keys, named=repository)
    url, checkout = _origin(path, repository)
    return _reach(url, checkout, keys)


def place_on_host(repository: str) -> Path | None:
    """The path of this host that an address names, None when it names a server: by its form, nothing is looked at.

    What may be either (`owner/name`, `host:path`) is taken for a server's: `resolve` with ELSEWHERE as `cwd` does, too.
    """
    scheme, separator, rest = repository.partition("://")
    if separator:
        return Path(rest) if scheme.lower() == "file" else None
    return None if _OWNER_NAME.fullmatch(repository) or _SCP_LIKE.fullmatch(repository) else Path(repository)


def check_checkout(source: str, url: str) -> Path:
    """The checkout at `source`. BadInput unless it is the top level of one, and what it was cloned from is `url`."""
    path = Path(source)
    if not path.is_absolute() or not path.is_dir():
        raise BadInput("source is no directory of this host", where=source, fix="leave it out, or name your checkout")
    found, root = _origin(path, source)
    if root is None or not os.path.samefile(root, path):
        raise BadInput("source is not the top level of a git checkout", where=source, fix="name its top level")
    if found != url:
        raise BadInput("source is not a checkout of the repository", where=source, fix=f"its origin is {redact(found)}")
    return path


def not_included(checkout: Path, begins: str, base: str = "", heads: Mapping[str, str] | None = None) -> list[str]:
    """List what lies in the submitter's working tree and is not part of the delivery: `["3 uncommitted files", …]`.

    begins  the branch that it begins with; `base`, where that is another one, is what it is compared with
    heads   branches as the origin has them now: a clone may not know what was pushed from elsewhere
    """
    git = visiting(checkout)
    found = []
    if changed := _changed(git):
        found.append(_count(changed, "uncommitted file"))
    branch = git.run("symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1)).text
    has_origin = git.run("config", "--get", "remote.origin.url", ok=(0, 1)).returncode == 0
    base, there = base or begins, heads or {}
    meant = _tracked(git, branch) if has_origin else branch  # a branch may have another name here than there
    pushed = ["--remotes=origin", *_here(git, [there.get(name, "") for name in (begins, base, meant)])]
    mine = [begins, *([branch] if branch and meant in (begins, base) else [])]
    for name in dict.fromkeys(mine if has_origin else []):
        unpushed = _commits(git, f"refs/heads/{name}", "--not", *pushed)
        found += [f"{_count(unpushed, 'unpushed commit')} on {name}"] if unpushed else []
    if branch and branch not in mine and meant not in (begins, base):
        known = _here(git, [there.get(begins, ""), f"refs/remotes/origin/{begins}", f"refs/heads/{begins}"])
        ahead = _commits(git, f"refs/heads/{branch}", "--not", *known) if known else 0
        found += [f"{_count(ahead, 'commit')} on {branch}, which is not the base"] if ahead else []
    return found


def _here(git: Git, commits: Iterable[str]) -> list[str]:
    """Those that this clone has, by their hashes."""
    asked = "".join(f"{name}\n" for name in dict.fromkeys(commits) if name)
    lines = git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked.encode()).text.splitlines()
    return [line.split()[0] for line in lines if line.endswith(" commit")]


def _tracked(git: Git, branch: str) -> str:
    """The name of a local branch on the origin it is pushed to; its own name where it follows none."""
    remote = git.run("config", "--get", f"branch.{branch}.remote", ok=(0, 1)).text
    merge = git.run("config", "--get", f"branch.{branch}.merge", ok=(0, 1)).text
    return merge.removeprefix("refs/heads/") if remote == "origin" and merge else branch


def _check_form(repository: str) -> None:
    if not repository.strip():
        raise BadInput("no repository was named", fix="name a path or URL: --repo .")
    if repository.startswith("-"):
        raise BadInput(f"{repository!r} starts with a dash", where="--repo", fix=f"for a path: ./{repository}")
    if any(ord(character) < 32 or ord(character) == 127 for character in repository):
        raise BadInput("the repository's name contains control characters", where="--repo")
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
    scheme, separator, rest = repository.partition("://")
    if separator:
        if scheme.lower() not in _SCHEMES:
            raise BadInput(f"{scheme}:// is not spoken here", where="--repo", fix=f"use one of {', '.join(_SCHEMES)}")
        if rest.startswith("-") or "@-" in rest.partition("/")[0]:
            raise BadInput(f"the host in {redact(repository)!r} starts with a dash", where="--repo")
        return True
    if Path(cwd, os.path.expanduser(repository)).exists() or not _SCP_LIKE.fullmatch(repository):
        return False
    if repository.partition(":")[0].rpartition("@")[2].startswith("-"):
        raise BadInput(f"the host in {repository!r} starts with a dash", where="--repo")
    return True


def _origin(path: Path, named: str) -> tuple[str, Path | None]:
    """The address of the repository at a path, and the checkout there, None for a bare repository."""
    if not path.exists():
        raise BadInput(f"there is no {named}", where=str(path), fix="name a git repository: --repo PATH or URL")
    try:
        place = find(path if path.is_dir() else path.parent)
    except GitError as error:
        if "dubious ownership" in error.stderr:
            fix = f"git config --global --add safe.directory {path}"
            raise BadInput("this repository belongs to another user", where=str(path), fix=fix) from error
        fix = "run this inside a repository, or: git init && git add -A && git commit -m first"
        raise BadInput("this is not a git repository", where=str(path), fix=fix) from error
    git, bare, root = place.git, place.root is None, place.root or place.git_dir
    has_origin = git.run("config", "--get", "remote.origin.url", ok=(0, 1)).returncode == 0
    if has_origin and not bare:  # a bare repository is where people push to: it is meant itself
        url = git.text("remote", "get-url", "origin")  # with the person's url.<base>.insteadOf
        _check_form(url)
        if not _is_url(url, root):
            url = os.path.normpath(root / os.path.expanduser(url))
    else:
        url = str(root)
    return url, None if bare else root


def _reach(url: str, checkout: Path | None, keys: Keyring, named: str = "") -> Target:
    try:
        heads = remote_heads(url, keys)
    except (ForgeRefused, ForgeUnavailable) as error:
        what = "the origin of this repository" if checkout is not None else "the repository"
        what = f"there is no directory {named}, and {url}" if named else what
        fix = error.fix or f"make this work first: git ls-remote {redact(url)}"
        said = f"{what} cannot be reached: {error.what.partition(': ')[2] or error.what}"
        if isinstance(error, ForgeUnavailable):
            raise ForgeUnavailable(said, where=redact(url), fix=fix, unknown_host=error.unknown_host) from error
        raise BadInput(said, where=redact(url), fix=fix) from error
    if not heads.branches:
        return _empty(url, checkout, keys, heads)
    if any(len(sha) != 40 for sha in heads.branches.values()):
        raise BadInput("the repository uses SHA-256 object names", where=redact(url), fix="use one with SHA-1 names")
    return Target(url, ids.repository_name(url), checkout, heads)


def _empty(url: str, checkout: Path | None, keys: Keyring, heads: Heads) -> Target:
    """One that has no branch yet. BadInput where its first commit has to be somebody else's."""
    push = "git push -u origin HEAD"
    fix = f"push a first commit: git commit --allow-empty -m first && {push}"
    try:
        others, name = refs_beside_branches(url, keys), first_branch(url, keys)
    except ForgeRefused as error:
        raise BadInput(f"the repository has no commits yet, and {error.what}", where=redact(url), fix=fix) from error
    if others:
        what = f"the repository has no branch, and is not empty: it has {others[0]}"
        raise BadInput(what, where=redact(url), fix=fix)
    if name is None:
        what = "the repository has no commits yet, and does not tell what its first branch is called"
        raise BadInput(what, where=redact(url), fix=fix)
    if checkout is not None:
        git = visiting(checkout)
        if commits := _commits(git, "--all"):
            what = f"the repository has no commits yet, and your checkout has {_count(commits, 'commit')}"
            raise BadInput(what, where=str(checkout), fix=f"push what is to be built on: {push}")
        if changed := _changed(git):
            what = f"the repository has no commits yet, and your checkout has {_count(changed, 'uncommitted file')}"
            commit = "git add -A && git commit -m first" + ("" if url == str(checkout) else f" && {push}")
            raise BadInput(what, where=str(checkout), fix=f"commit what is to be built on: {commit}")
    return Target(
        url, ids.repository_name(url), checkout, Heads(name, {name: FIRST_COMMIT}, heads.moved_to), empty=True
    )


def _changed(git: Git) -> int:
    return len(git.run("status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all").names)


def _commits(git: Git, *range_: str) -> int:
    counted = git.run("rev-list", "--count", *range_, "--", ok=(0, 128))
    return int(counted.text) if counted.returncode == 0 else 0


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"

"""Questions to the user's remote (branches, refs, newest commits), its failures told apart as final or worth another
try, and the first commit for a remote that has none. Used by other adapters, activities and the command line. Pushes
are in `git.publish`.

A pull request needs a branch to be compared with, and no forge opens one onto a repository without any. The first
commit is the same wherever it is made (its date means nothing), so that two deliveries, two hosts and a retry agree.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from perdure.adapters.git.command import Git, GitError, GitLimitExceeded, GitOutput, redact
from perdure.adapters.git.credentials import NO_KEYS, Credential, Keyring, access_fix, connection_fix, main_line
from perdure.adapters.git.objects import ObjectStore
from perdure.models.errors import ForgeRefused, ForgeUnavailable, StepError
from perdure.models.limits import GIT_LOOK_S
from perdure.text import shell_word

_FINAL = re.compile(
    r"authentication failed|could not read (username|password)|permission denied|access denied|invalid credentials"
    r"|terminal prompts disabled|host key verification failed|error: 40[134]|repository .* not found|not exported"
    r"|does not appear to be a git repository|does not exist|dubious ownership|transport '\S+' not allowed"
    r"|unable to find remote helper|unsupported protocol|mismatched algorithms|pack-objects died|unpacker error"
    r"|does not support this repository's hash algorithm",
    re.IGNORECASE,
)
"""Messages that the next try would get again."""

_AWAY = re.compile(r"error: (408|429|5\d\d)|rate limit|abuse detection", re.IGNORECASE)
"""Messages of a server that is not well or wants us to wait, whatever else its page says."""

_UNKNOWN_HOST = re.compile(r"could not resolve host", re.IGNORECASE)
"""A message about a name without an address: misspelt, or looked up while the network is away."""

_INCOMPLETE = re.compile("lazy fetching disabled|shallow roots are not allowed to be updated")
"""Messages about a repository that is not all there: files that are fetched when they are needed, and no old commits.
The second one comes as a warning."""

REFUSED_REF_NAME = re.compile(r"(?:^|/)(?:\.|$|/)|\.\.|\.(?:lock)?(?:/|$)|@\{|[\x00-\x20\x7f~^:?*\[\\]")
"""A part of a name that no ref may have, as `git check-ref-format` has it."""

_REDIRECT = re.compile(r"^warning: redirecting to (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Heads:
    """A remote's branches with their commits; `default` is the branch that its HEAD names, None when it names none.

    moved_to  the remote's new address, when it answered with a redirect (a renamed repository): worth telling once
    """

    default: str | None
    branches: dict[str, str] = field(default_factory=dict)
    moved_to: str | None = None


def remote_heads(url: str, keys: Keyring = NO_KEYS) -> Heads:
    """Ask a remote for its branches and return them, with the default branch and a new address, if it named one.

    Raises ForgeRefused when the remote refuses, ForgeUnavailable when it does not answer.
    """
    listed = _list_remote(url, keys, "HEAD", "refs/heads/*")
    default, branches = None, {}
    for line in listed.text.splitlines():
        value, _, name = line.partition("\t")
        if value.startswith("ref: ") and name == "HEAD":
            default = value.removeprefix("ref: refs/heads/")
        elif name.startswith("refs/heads/"):
            branches[name.removeprefix("refs/heads/")] = value
    return Heads(default if default in branches else None, branches, _redirect_address(url, listed.stderr))


def remote_refs(url: str, keys: Keyring = NO_KEYS) -> list[str]:
    """Return the names of all refs that a remote shows: branches, tags, pull requests.

    Raises ForgeRefused when the remote refuses, ForgeUnavailable when it does not answer.
    """
    lines = _list_remote(url, keys).text.splitlines()
    return [line.partition("\t")[2] for line in lines if not line.startswith("ref: ")]


def remote_tags(url: str, keys: Keyring = NO_KEYS) -> dict[str, tuple[str, str]]:
    """Return a remote's tags by name, each with its object and the object that it stands for in the end. Names that git
    refuses are left out: a remote may say anything, and refs are files.

    Raises ForgeRefused when the remote refuses, ForgeUnavailable when it does not answer.
    """
    lines = [line.partition("\t") for line in _list_remote(url, keys, "refs/tags/*").text.splitlines()]
    shas = {ref.removeprefix("refs/tags/"): sha for sha, _, ref in lines if ref.startswith("refs/tags/")}
    shas = {name: sha for name, sha in shas.items() if not REFUSED_REF_NAME.search(name.removesuffix("^{}"))}
    return {name: (sha, shas.get(f"{name}^{{}}", sha)) for name, sha in shas.items() if not name.endswith("^{}")}


def remote_tip(url: str, branch: str, keys: Keyring = NO_KEYS) -> str | None:
    """Return the commit of a branch on the remote, None when it does not exist there. Raises ForgeRefused or
    ForgeUnavailable."""
    return remote_heads(url, keys).branches.get(branch)


def remote_failure(url: str, error: GitError, credential: Credential | None = None) -> StepError:
    """Return the error for a network command of git that failed, with advice: ForgeRefused when it would fail again
    (refused, too large, damaged), else ForgeUnavailable.

    url         of the remote; a credential in it is left out of the error
    credential  what the remote was shown: it only chooses the advice; None: the owner's own git configuration answered
    """
    busy_lines = [line.strip() for line in error.stderr.splitlines() if _AWAY.search(line)]
    message = next(iter(busy_lines), main_line(error.stderr)) or error.what
    where = redact(url)
    if incomplete := _INCOMPLETE.search(error.stderr):
        kind, lacks, command = (
            ("partial", "files", "fetch --refetch --no-filter")
            if incomplete[0].startswith("lazy")
            else ("shallow", "commits before its oldest", "fetch --unshallow")
        )
        path = where.removeprefix("file://")
        git = f"git -C {shell_word(path)}" if path.startswith("/") else "there: git"
        fix = f"name the repository that it was cloned from, or: {git} {command}"
        return ForgeRefused(f"the repository is a {kind} clone, in which {lacks} are missing", where=where, fix=fix)
    if isinstance(error, GitLimitExceeded):
        fix = "check the address; a repository this large does not fit here"
        return ForgeRefused(f"the remote is left: {message}", where=where, fix=fix)
    if error.damaged:
        fix = "git fsck --full shows what is damaged: there, or in vaults/ of PERDURE_HOME, which may be moved away"
        return ForgeRefused(f"the repository or this host's copy of it is damaged: {message}", where=where, fix=fix)
    if error.returncode is not None and _FINAL.search(error.stderr) and not busy_lines:
        fix = access_fix(where, error.stderr, credential)
        return ForgeRefused(f"the remote refuses: {message}", where=where, fix=fix)
    unknown, fix = _UNKNOWN_HOST.search(error.stderr) is not None, connection_fix(error.stderr)
    return ForgeUnavailable(f"the remote cannot be reached: {message}", where=where, fix=fix, unknown_host=unknown)


def _list_remote(url: str, keys: Keyring, *patterns: str) -> GitOutput:
    """Run `git ls-remote` for refs that match the patterns (all without any), and return its output.

    Raises ForgeRefused when the remote refuses, ForgeUnavailable when it does not answer.
    """
    credential = keys.credential(url)
    try:
        command = ("ls-remote", "--symref", "--", url, *patterns)
        return Git(as_owner=True).execute(*command, timeout_s=GIT_LOOK_S, credential=credential)
    except GitError as error:
        raise remote_failure(url, error, credential) from error


def _redirect_address(url: str, stderr: str) -> str | None:
    """Return the address that a redirect in git's stderr named, written as `url` is (with `.git` or without); None
    without a redirect to another one."""
    match = _REDIRECT.search(stderr)
    if match is None:
        return None
    address = redact(match[1]).rstrip("/")
    if not url.rstrip("/").endswith(".git"):
        address = address.removesuffix(".git")
    return address if address != url.rstrip("/") else None


TRAILER = "Perdure-Delivery"
_REF = "refs/heads/looked-at"


@dataclass(frozen=True)
class BranchCommit:
    """A commit of a remote branch. `delivery` is the key of the delivery that made it, by its trailer; empty when
    none did."""

    sha: str
    parents: tuple[str, ...]
    delivery: str


def fetch_branch_commits(url: str, branch: str, most: int, keys: Keyring = NO_KEYS) -> list[BranchCommit]:
    """Return the newest commits of a branch on a remote, at most `most`, by first parents, the newest first.

    They are fetched, without their files, into a directory that is removed afterwards. Raises ForgeRefused when the
    remote refuses; ForgeUnavailable when it does not answer, or has no such branch.
    """
    with tempfile.TemporaryDirectory(prefix="perdure-commits-") as scratch:
        Git(cwd=Path(scratch)).execute("init", "--quiet", "--bare", scratch)
        git, credential = Git(git_dir=Path(scratch)), keys.credential(url)
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--filter=tree:0", f"--depth={most}")
        try:
            git.for_owner().execute("fetch", *options, "--", url, f"+refs/heads/{branch}:{_REF}", credential=credential)
        except GitError as error:
            raise remote_failure(url, error, credential) from error
        log_format = f"--format=%H%x1f%P%x1f%(trailers:key={TRAILER},valueonly,unfold,separator=%x2C)"
        lines = git.execute("log", "--first-parent", f"--max-count={most}", log_format, _REF).lines
    rows = [line.split("\x1f", 2) for line in lines]
    return [BranchCommit(sha, tuple(parents.split()), delivery.strip()) for sha, parents, delivery in rows]


FIRST_COMMIT = "2c3c92a6ebdac691d7837f8fd51a4e81bcb61415"
"""The commit that `write_first_commit` makes. A delivery with this base began in an empty repository, or in one that
was begun in this way before."""

_MADE_AT = 946684800  # the first second of the year 2000
_MESSAGE = """\
Empty first commit

The repository had no commit, and a pull request needs one to be compared with.
Made by Perdure.
"""
_UNKNOWN_BRANCH = "perdure-was-not-told"


def write_first_commit(store: ObjectStore) -> str:
    """Write FIRST_COMMIT to an object store and return its hash. Safe to repeat."""
    return store.write_commit(store.write_tree(()), (), _MESSAGE, timestamp=_MADE_AT)


def list_refs_but_head(url: str, keys: Keyring = NO_KEYS) -> list[str]:
    """List all refs that a remote shows but its HEAD: for a repository without branches its tags, pull requests and
    notes. None of them means that it is empty. Raises ForgeRefused, ForgeUnavailable."""
    return [name for name in remote_refs(url, keys) if name != "HEAD"]


def find_first_branch(url: str, keys: Keyring = NO_KEYS) -> str | None:
    """Return the name of the branch at which the HEAD of a repository without commits points; None when the remote does
    not tell, or the name is not allowed.

    Only a clone learns it, which is made in a temporary directory; nothing is copied, for there is nothing. Raises
    ForgeRefused when the remote refuses, ForgeUnavailable when it does not answer.
    """
    credential = keys.credential(url)
    with tempfile.TemporaryDirectory(prefix="perdure-first-") as scratch:
        clone = Path(scratch, "clone.git")
        git = Git(cwd=Path(scratch), as_owner=True, settings=(f"init.defaultBranch={_UNKNOWN_BRANCH}",))
        command = ("clone", "--quiet", "--bare", "--template=", "--depth=1", "--", url, str(clone))
        try:
            git.execute(*command, timeout_s=GIT_LOOK_S, credential=credential)
        except GitError as error:
            raise remote_failure(url, error, credential) from error
        name = Git(git_dir=clone).text("symbolic-ref", "HEAD").removeprefix("refs/heads/")
        is_valid = git.execute("check-ref-format", f"refs/heads/{name}", ok=(0, 1)).returncode == 0
    return name if is_valid and name not in (_UNKNOWN_BRANCH, "HEAD") and not name.startswith(("-", "refs/")) else None

"""The one door to git: GitPython's `execute`, with nothing left to chance in its environment or configuration."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import git

from perdure.adapters.git.bounds import Bounds, patience
from perdure.adapters.git.credentials import Credential, offered
from perdure.adapters.git.refusals import main_line
from perdure.models import limits
from perdure.models.errors import PerdureError

GIT_WATCH_S = 0.5
"""Between two looks at what a remote makes git take: at 500 MB/s, 0.25 GB too late."""

GIT_LINE_CHARS = 2000
"""Of one line that git or a remote says: an honest one has a hundred, and a stranger's may have a megabyte."""


IDENTITY = {
    "GIT_AUTHOR_NAME": "Perdure",
    "GIT_AUTHOR_EMAIL": "perdure@localhost",
    "GIT_COMMITTER_NAME": "Perdure",
    "GIT_COMMITTER_EMAIL": "perdure@localhost",
}

SETTINGS = (
    "core.fsmonitor=false",  # a program, started by `status` and `add`
    "core.hooksPath=/dev/null",
    "safe.bareRepository=explicit",  # a folder of a clone can be one, with programs in its configuration
    "log.showSignature=false",  # gpg.program
    "core.excludesFile=/dev/null",  # their default lies below $XDG_CONFIG_HOME, whatever GIT_CONFIG_GLOBAL says
    "core.attributesFile=/dev/null",
    "core.fsync=all",  # git syncs no loose object by default (holes.md H13)
    "core.fsyncMethod=fsync",
    "core.filesRefLockTimeout=1000",  # ms; the default of 100 is short on a busy host
    "core.safecrlf=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.ext.allow=never",  # a remote that is a command line, also through url.<base>.insteadOf
    "commit.gpgSign=false",
    "push.gpgSign=false",
    "push.followTags=false",
    "push.recurseSubmodules=no",
    "submodule.recurse=false",
    "color.ui=false",
    "advice.detachedHead=false",
)

_LOCAL_NAMES = frozenset({"PATH", "TMPDIR", "LD_LIBRARY_PATH"})
_OWNER_NAMES = _LOCAL_NAMES | {
    *("HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GNUPGHOME"),
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_ASKPASS", "KRB5CCNAME", "KRB5_CONFIG"),
    *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
}
"""Variables for credential helpers and ssh; no token and no key is among them: a forge's goes through `credential`."""

_USERINFO = re.compile(r"(?<=://)[^/\s@']*@")
_TOKEN = re.compile(r"(?i)\b((?:access_|private_|job_)?token|password)=[^&\s']+")
_KNOWN_TOKEN = re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-)[\w-]+")
_STDERR_LINES = 20
_DAMAGED = re.compile(
    r"inflate: data|object file \S+ is empty|loose object \S+ .*is corrupt|packfile \S+ (cannot|is far too short)"
)
"""Of objects that lie in a repository; what was damaged on its way is said otherwise, and comes whole the next time."""


def redact(text: str) -> str:
    """A text without the credentials that URLs in it carry, and without tokens that look like one.

    `ssh://git@host` keeps its well-known name.
    """
    text = _USERINFO.sub(lambda found: found[0] if found[0] == "git@" else "***@", text)
    return _KNOWN_TOKEN.sub("***", _TOKEN.sub(r"\1=***", text))


def readable(text: str) -> str:
    """Words of git or a remote, redacted, its lines cut in their middle: they are looked through for words, and none
    has to be read to the end at each of them."""
    return "\n".join(_cut(line) for line in redact(text).splitlines())


def _cut(line: str) -> str:
    half = GIT_LINE_CHARS // 2 - 1
    return line if len(line) <= GIT_LINE_CHARS else f"{line[:half]}…{line[-half:]}"


class GitError(PerdureError):
    """A git command that failed. `stderr`: its last lines, redacted; `returncode` is None when we ended it; `damaged`:
    a repository is, and the next try would fail likewise."""

    def __init__(self, args: Sequence[str], returncode: int | None, stderr: str) -> None:
        self.command = tuple(redact(arg) for arg in args)
        self.returncode = returncode
        self.stderr = readable("\n".join(stderr.strip().splitlines()[-_STDERR_LINES:]))
        how = "was ended" if returncode is None else f"failed with exit code {returncode}"
        said = main_line(self.stderr) or "it said nothing"
        self.damaged = _DAMAGED.search(self.stderr) is not None
        fix = "git fsck --full shows what is damaged there" if self.damaged else ""
        where = " ".join(("git", *self.command))
        super().__init__(f"git {self.command[0] if args else ''} {how}: {said}", where=where, fix=fix)


class GitTooMuch(GitError):
    """It was ended because of what a remote made it take; the next try would be the same."""

    def __init__(self, args: Sequence[str], over: str) -> None:
        super().__init__(args, None, over)


@dataclass(frozen=True)
class Output:
    """The answer of a git command: stdout as bytes (names are bytes to git), stderr as text, readable."""

    returncode: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """stdout without the final newline; bytes that are not UTF-8 survive a round trip through the file system."""
        return os.fsdecode(self.stdout).removesuffix("\n")

    @property
    def names(self) -> list[str]:
        """stdout of a `-z` command, split."""
        return [os.fsdecode(name) for name in self.stdout.split(b"\0") if name]


@dataclass(frozen=True)
class Git:
    """Git for one repository, everything pinned; safe to share between threads, for it holds no state.

    git_dir     None only for commands that need no repository (`ls-remote`) or look for the user's (`as_owner`)
    as_owner    run with the configuration, credentials and proxies of the person who owns this process: needed to
                reach their remote. It is safe because no file of it can be written from a sandbox: the repository
                is the vault or the person's own, the worktree is not looked at, and SETTINGS still win over it.
    settings    more `-c` settings
    variables   more of its environment (perdure.adapters.git.visit)
    """

    git_dir: Path | None = None
    work_tree: Path | None = None
    common_dir: Path | None = None
    index: Path | None = None
    objects: Path | None = None
    cwd: Path | None = None
    as_owner: bool = False
    settings: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    def owner(self) -> Git:
        """The same repository, with the owner's credentials."""
        return replace(self, as_owner=True)

    def text(self, *args: str) -> str:
        """stdout of a command that must succeed, as text."""
        return self.run(*args).text

    def run(
        self,
        *args: str,
        stdin: bytes | None = None,
        ok: Sequence[int] = (0,),
        env: Mapping[str, str] | None = None,
        hold: Sequence[int] = (),
        timeout_s: float = limits.GIT_TIMEOUT_S,
        credential: Credential | None = None,
    ) -> Output:
        """Run one git command to its end.

        `hold`: descriptors of locks the child shares, so that they stay taken while it lives, even when we do not.
        `credential`: shown to its server when that asks; the owner's own helpers are then not asked.
        Raises GitError for an exit code outside `ok` and after `timeout_s`, when its whole process group is killed.
        """
        with offered(credential) as offer:
            variables = {**(env or {}), **offer.env}
            settings = (*offer.settings, *(patience() if args[0] in ("fetch", "ls-remote") else ()))
            started = self._start(args, settings, variables, (*hold, *offer.descriptors), stdin is not None)
        process = cast("subprocess.Popen[bytes]", started.proc)
        try:
            out, err = self._ended(process, args, stdin, timeout_s)
        except BaseException:
            _kill(process)
            raise
        stderr = err.decode(errors="replace")
        if credential is not None:  # a server may repeat what it was told
            stderr = credential.hide(stderr)
        if process.returncode not in ok:
            raise GitError(args, process.returncode, stderr)
        return Output(process.returncode, out, readable(stderr))

    def _ended(
        self, process: subprocess.Popen[bytes], args: Sequence[str], stdin: bytes | None, timeout_s: float
    ) -> tuple[bytes, bytes]:
        """stdout and stderr. One that speaks to a remote, as only the owner's does, is looked at meanwhile."""
        bounds, deadline = Bounds(self.git_dir) if self.as_owner else None, time.monotonic() + timeout_s
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                return process.communicate(stdin, timeout=min(left, GIT_WATCH_S) if bounds else left)
            except subprocess.TimeoutExpired as going:
                stdin = None  # it is on its way
                over = bounds.over(process.pid, going) if bounds else ""
                if over or time.monotonic() >= deadline:
                    unfinished = bounds.unfinished(process.pid) if bounds else []
                    _kill(process)
                    for path in unfinished:
                        path.unlink(missing_ok=True)
                    raise (
                        GitTooMuch(args, over) if over else GitError(args, None, f"no end after {timeout_s:g} s")
                    ) from None

    def start(self, *args: str, settings: Sequence[str] = ()) -> Any:
        """A command that goes on, and answers on its pipes, for as long as what is returned is held or until somebody
        ends it: its `proc` is a Popen with pipes as stdin, stdout and stderr."""
        return self._start(args, settings, {}, (), fed=True)

    def _start(
        self, args: Sequence[str], extra: Sequence[str], env: Mapping[str, str], inherit: Sequence[int], fed: bool
    ) -> Any:
        """GitPython's wrapper of the process, which ends it when nobody holds the wrapper any more."""
        pinned = self._environment() | dict(env)
        allowed = _OWNER_NAMES if self.as_owner else _LOCAL_NAMES
        # GitPython merges over os.environ. What nobody allowed is empty from the start: for a moment every user's `ps`
        # could read it there, secrets included. An owner's helpers and git itself take some empty ones for something
        # (GIT_DIR): `env -u` takes those away, and costs a third of a short command.
        surplus = os.environ.keys() - allowed - pinned.keys()
        misread = sorted(name for name in surplus if "=" not in name and (self.as_owner or _means_something(name)))
        without = ["env", *(f"--unset={name}" for name in misread)] if misread else []
        settings = [part for setting in (*SETTINGS, *self.settings, *extra) for part in ("-c", setting)]
        directory = self.cwd or self.work_tree or self.git_dir or Path("/")
        if not os.access(directory, os.X_OK):  # GitPython would run it in this process's own directory instead
            raise GitError(args, 128, f"fatal: cannot work in {directory}")
        # A group of its own, to kill. A session has no terminal to ask questions on, and costs a millisecond where the
        # kernel schedules by sessions: only who speaks to a remote asks.
        apart: dict[str, Any] = {"start_new_session": True} if self.as_owner else {"process_group": 0}
        return git.Git(directory).execute(
            [*without, "git", *settings, *args],
            istream=cast("Any", subprocess.PIPE if fed else subprocess.DEVNULL),
            as_process=True,
            env=dict.fromkeys(surplus, "") | pinned,
            **apart,
            umask=0o022,  # what git checks out has the same modes on every host
            pass_fds=tuple(inherit),
        )

    def _environment(self) -> dict[str, str]:
        pinned = IDENTITY | {
            "LC_ALL": "C",
            "LANGUAGE": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_LAZY_FETCH": "1",  # for a missing object, a command line of the repository's would be started
        }
        if not self.as_owner:
            # and no transport: whoever speaks to a remote does it as its owner
            pinned |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_ALLOW_PROTOCOL": "none"}
        paths = {
            "GIT_DIR": self.git_dir,
            "GIT_COMMON_DIR": self.common_dir or self.git_dir,
            "GIT_WORK_TREE": self.work_tree,
            "GIT_INDEX_FILE": self.index,
            "GIT_OBJECT_DIRECTORY": self.objects,
        }
        return pinned | {name: str(path) for name, path in paths.items() if path} | dict(self.variables)


def _means_something(name: str) -> bool:
    """True where git takes a variable that is empty for something; for those of a remote, nobody asks in a vault."""
    return name.startswith("GIT_") and name not in _OWNER_NAMES


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the command and every helper it started, and wait for it; not for a helper that has left its group, which
    may keep our pipes open for as long as it lives."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was to be written to it
                pipe.close()

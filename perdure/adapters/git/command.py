"""The only way in which git is called: GitPython's `execute`, with a pinned environment and configuration, its errors
as GitError, and limits on what a remote may make git use on this host.

Git has no limits of its own for what it fetches. So a running command that may speak to a remote is measured at
intervals, and killed with all its helpers when it is over a limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, cast

from perdure.adapters.git.credentials import Credential, main_line, offer_credential
from perdure.adapters.sandbox.usage import measure_usage, process_tree
from perdure.adapters.system.files import size_on_disk
from perdure.models import limits
from perdure.models.errors import BadInput, PerdureError
from perdure.models.limits import SANDBOX_PROCESSES
from perdure.text import cut_middle

_QUIET = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_own_values = {name: os.environ[name] for name in _QUIET if name in os.environ}
os.environ |= _QUIET
try:
    import git  # it calls `git version` now, which a configuration that git cannot read would end
except ImportError as error:
    fix = "install git, or put its directory on the PATH"
    raise BadInput("git cannot be run", where=f"PATH={os.environ.get('PATH', '')}", fix=fix) from error

for _name in _QUIET:
    del os.environ[_name]
os.environ |= _own_values

GIT_SILENCE_S = 60
"""The longest time without a byte from a remote. Servers that prepare a large answer send a sign of life every 5 s."""

GIT_FETCH_BYTES = 16 * 1024**3
"""The most bytes that one fetch may add to the vault. No connection that a fetch uses brings more within
GIT_TIMEOUT_S."""

GIT_MEMORY_BYTES = 4 * 1024**3
"""The most memory of git and its helpers together. Putting together the pack of the Linux kernel takes 1.5 GB."""

GIT_OUTPUT_BYTES = 64 * 1024**2
"""The most output that a remote may make git print, which we hold in memory: the names of half a million branches."""


MB = 1024**2


class RemoteLimits:
    """The limits of one running git command that speaks to a remote.

    `git_dir` is the repository that the command writes to, None when it writes to no repository of ours. The size of
    the objects there, git-lfs's too, is first measured at the first check, not at the start: most commands have ended
    by then.
    """

    def __init__(self, git_dir: Path | None) -> None:
        self._object_dirs = [] if git_dir is None else [git_dir / "objects", git_dir / "lfs"]
        self._initial_size: int | None = None

    def exceeded_limit(self, pid: int, partial: TimeoutExpired) -> str:
        """Return the limit that the running command is over, as a clause for a message ("it sends more than …"); empty
        where it is over none. The command is not killed here.

        `pid` is the command's process, `partial` what `communicate` raised with the output until now. Measured are the
        bytes added to the vault since the first call, the output, and the memory of the command and its descendants.
        """
        size = sum(map(size_on_disk, self._object_dirs))
        self._initial_size = size if self._initial_size is None else self._initial_size
        if size - self._initial_size > GIT_FETCH_BYTES:
            return f"it sends more than {GIT_FETCH_BYTES // MB} MB at once"
        if sum(len(stream or b"") for stream in (partial.output, partial.stderr)) > GIT_OUTPUT_BYTES:
            return f"it says more than {GIT_OUTPUT_BYTES // MB} MB of words"
        if measure_usage(pid, SANDBOX_PROCESSES).memory > GIT_MEMORY_BYTES:
            return f"git needs more than {GIT_MEMORY_BYTES // MB} MB of memory for what it sends"
        return ""

    def unfinished_files(self, pid: int) -> list[Path]:
        """List the temporary files of the repository that the command's processes have open, to be deleted once it is
        killed. Other temporary files may belong to somebody who is packing the vault."""
        return [
            path
            for path in _list_open_files(pid)
            if {*self._object_dirs} & {*path.parents}
            and (path.name.startswith("tmp_") or path.parent.name in ("tmp", "incomplete"))
        ]


def low_speed_settings() -> tuple[str, ...]:
    """Return the git settings by which git leaves a web server that sends less than a byte a second for GIT_SILENCE_S;
    keep-alive messages count as bytes."""
    return ("http.lowSpeedLimit=1", f"http.lowSpeedTime={GIT_SILENCE_S}")


def _list_open_files(root: int) -> Iterator[Path]:
    """Yield the path of every file that a process and its descendants have open (from /proc). What cannot be read is
    skipped."""
    for pid in process_tree(root):
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    yield Path(os.readlink(f"/proc/{pid}/fd/{number}"))


GIT_WATCH_S = 0.5
"""The time between two measurements of what a remote makes git use: at 500 MB/s a limit is noticed 0.25 GB too late."""

GIT_LINE_CHARS = 2000
"""The most characters kept of one line that git or a remote prints: an honest one has a hundred, and a stranger's may
have a megabyte."""


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
    "core.fsync=objects,derived-metadata,reference",  # git syncs no loose object by default; no index lasts for ever
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
"""Variables that credential helpers and ssh need. No token and no key is among them: a forge's goes through
`credential`."""

_USERINFO = re.compile(r"(?<=://)[^/\s@']*@")
_TOKEN = re.compile(r"(?i)\b((?:access_|private_|job_)?token|password)=[^&\s']+")
_KNOWN_TOKEN = re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-)[\w-]+")
_STDERR_LINES = 20
_DAMAGED = re.compile(
    r"inflate: data|object file \S+ is empty|loose object \S+ .*is corrupt|packfile \S+ (cannot|is far too short)"
)
"""Messages about damaged objects in a repository. Damage on the way is reported otherwise, and the next try gets it
whole."""


def redact(text: str) -> str:
    """Return a text without the credentials in its URLs, and without what looks like a token. `ssh://git@host` keeps
    its well-known name."""
    text = _USERINFO.sub(lambda match: match[0] if match[0] == "git@" else "***@", text)
    return _KNOWN_TOKEN.sub("***", _TOKEN.sub(r"\1=***", text))


def redact_and_shorten(text: str) -> str:
    """Return output of git or a remote, redacted, with long lines cut in their middle: patterns are searched in every
    line, and none has to be read to its end."""
    return "\n".join(cut_middle(line, GIT_LINE_CHARS, "…", head_share=0.5) for line in redact(text).splitlines())


class GitError(PerdureError):
    """The error of a git command that failed.

    stderr      its last lines, redacted
    returncode  None when we killed the command
    damaged     a repository is damaged, and the next try would fail likewise
    """

    def __init__(self, args: Sequence[str], returncode: int | None, stderr: str) -> None:
        self.command = tuple(redact(arg) for arg in args)
        self.returncode = returncode
        self.stderr = redact_and_shorten("\n".join(stderr.strip().splitlines()[-_STDERR_LINES:]))
        ending = "was ended" if returncode is None else f"failed with exit code {returncode}"
        summary = main_line(self.stderr) or "it said nothing"
        self.damaged = _DAMAGED.search(self.stderr) is not None
        fix = "git fsck --full shows what is damaged there" if self.damaged else ""
        where = " ".join(("git", *self.command))
        super().__init__(f"git {self.command[0] if args else ''} {ending}: {summary}", where=where, fix=fix)


class GitLimitExceeded(GitError):
    """The error of a git command that was killed because a remote made it use too much. The next try would end the same
    way."""

    def __init__(self, args: Sequence[str], limit: str) -> None:
        super().__init__(args, None, limit)


@dataclass(frozen=True)
class GitOutput:
    """The output of a git command: stdout as bytes (names are bytes to git), stderr as text, redacted and shortened."""

    returncode: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Return stdout without the final newline. Bytes that are not UTF-8 survive a round trip through the file
        system."""
        return os.fsdecode(self.stdout).removesuffix("\n")

    @property
    def lines(self) -> list[str]:
        """Return the lines of stdout, which only a newline ends: messages of commits have other ends of lines."""
        return self.text.split("\n") if self.stdout else []

    @property
    def names(self) -> list[str]:
        """Return the names in the stdout of a `-z` command."""
        return [os.fsdecode(name) for name in self.stdout.split(b"\0") if name]


@dataclass(frozen=True)
class Git:
    """Git for one repository, with everything pinned; safe to share between threads, for it holds no state.

    git_dir     None only for commands that need no repository (`ls-remote`) or look for the user's (`as_owner`)
    as_owner    run with the configuration, credentials and proxies of the person who owns this process: needed to
                reach their remote. It is safe because no file of it can be written from a sandbox: the repository
                is the vault or the person's own, the worktree is not looked at, and SETTINGS still win over it.
    settings    more `-c` settings
    variables   more environment variables (perdure.adapters.git.foreign_repository)
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

    def for_owner(self) -> Git:
        """Return git for the same repository, with the owner's credentials and configuration."""
        return replace(self, as_owner=True)

    def text(self, *args: str) -> str:
        """Run a command that must succeed and return its stdout as text. Raises GitError."""
        return self.execute(*args).text

    def execute(
        self,
        *args: str,
        stdin: bytes | None = None,
        ok: Sequence[int] = (0,),
        env: Mapping[str, str] | None = None,
        lock_fds: Sequence[int] = (),
        timeout_s: float = limits.GIT_TIMEOUT_S,
        credential: Credential | None = None,
    ) -> GitOutput:
        """Run one git command, wait for its end and return its output.

        lock_fds    descriptors of locks that git inherits, so that they stay locked while it lives, even when we do not
        credential  shown to its server when that asks; the owner's own helpers are then not asked

        Raises GitError for an exit code outside `ok`, after `timeout_s`, and where the directory to work in cannot be
        entered; GitLimitExceeded, which is one, when a command of the owner uses too much. On any error its whole
        process group is killed.
        """
        with offer_credential(credential) as offer:
            variables = {**(env or {}), **offer.env}
            settings = (*offer.settings, *(low_speed_settings() if args[0] in ("fetch", "ls-remote") else ()))
            wrapper = self._spawn_process(args, settings, variables, (*lock_fds, *offer.descriptors), stdin is not None)
        process = cast("subprocess.Popen[bytes]", wrapper.proc)
        try:
            out, err = self._wait_for_output(process, args, stdin, timeout_s)
        except BaseException:
            _kill_process_group(process)
            raise
        stderr = err.decode(errors="replace")
        if credential is not None:  # a server may repeat what it was told
            stderr = credential.redact_secret(stderr)
        if process.returncode not in ok:
            raise GitError(args, process.returncode, stderr)
        return GitOutput(process.returncode, out, redact_and_shorten(stderr))

    def _wait_for_output(
        self, process: subprocess.Popen[bytes], args: Sequence[str], stdin: bytes | None, timeout_s: float
    ) -> tuple[bytes, bytes]:
        """Send `stdin` to the process, wait for its end and return its stdout and stderr.

        A process that takes longer than `timeout_s` is killed, and GitError raised. That of an owner's command, which
        may speak to a remote, is measured meanwhile: when it is over a limit it is killed, and GitLimitExceeded raised.
        Files that it leaves unfinished in the repository are then deleted.
        """
        remote_limits, deadline = RemoteLimits(self.git_dir) if self.as_owner else None, time.monotonic() + timeout_s
        while True:
            remaining_s = max(0.0, deadline - time.monotonic())
            try:
                return process.communicate(
                    stdin, timeout=min(remaining_s, GIT_WATCH_S) if remote_limits else remaining_s
                )
            except subprocess.TimeoutExpired as expired:
                stdin = None  # communicate goes on sending what it was given first
                limit = remote_limits.exceeded_limit(process.pid, expired) if remote_limits else ""
                if limit or time.monotonic() >= deadline:
                    unfinished = remote_limits.unfinished_files(process.pid) if remote_limits else []
                    _kill_process_group(process)
                    for path in unfinished:
                        path.unlink(missing_ok=True)
                    raise (
                        GitLimitExceeded(args, limit)
                        if limit
                        else GitError(args, None, f"no end after {timeout_s:g} s")
                    ) from None

    def start_process(self, *args: str, settings: Sequence[str] = ()) -> Any:
        """Start a command that goes on and answers on its pipes, and return its wrapper: its `proc` is a Popen with
        pipes as stdin, stdout and stderr. It runs as long as the wrapper is referenced, or until somebody ends it."""
        return self._spawn_process(args, settings, {}, (), has_stdin=True)

    def _spawn_process(
        self,
        args: Sequence[str],
        extra_settings: Sequence[str],
        env: Mapping[str, str],
        inherited_fds: Sequence[int],
        has_stdin: bool,
    ) -> Any:
        """Start git in a process group of its own (`as_owner`: a session), and return GitPython's wrapper of it, which
        kills it when the wrapper is no longer referenced.

        Git gets the pinned variables and `env`; whatever else stands in this process's environment and is not allowed
        is emptied or unset. `has_stdin` makes stdin a pipe, otherwise it is empty. Raises GitError when the directory
        to work in cannot be entered.
        """
        pinned = self._pinned_variables() | dict(env)
        allowed = _OWNER_NAMES if self.as_owner else _LOCAL_NAMES
        # GitPython merges over os.environ. What nobody allowed is empty from the start: for a moment every user's `ps`
        # could read it there, secrets included. An owner's helpers and git itself take some empty ones for something
        # (GIT_DIR): `env -u` takes those away, and costs a third of a short command.
        surplus = os.environ.keys() - allowed - pinned.keys()
        names_to_unset = sorted(
            name for name in surplus if "=" not in name and (self.as_owner or _matters_when_empty(name))
        )
        unset_prefix = [_find_program("env"), *(f"--unset={name}" for name in names_to_unset)] if names_to_unset else []
        own = () if self.as_owner else ("lfs.url=file:///dev/null",)  # whatever a .lfsconfig says
        settings = [part for setting in (*SETTINGS, *own, *self.settings, *extra_settings) for part in ("-c", setting)]
        directory = self.cwd or self.work_tree or self.git_dir or Path("/")
        if not os.access(directory, os.X_OK):  # GitPython would run it in this process's own directory instead
            raise GitError(args, 128, f"fatal: cannot work in {directory}")
        # A group of its own, to kill. A session has no terminal to ask questions on, and costs a millisecond where the
        # kernel schedules by sessions: only who speaks to a remote asks.
        isolation: dict[str, Any] = {"start_new_session": True} if self.as_owner else {"process_group": 0}
        return git.Git(directory).execute(
            [*unset_prefix, _find_program("git"), *settings, *args],
            istream=cast("Any", subprocess.PIPE if has_stdin else subprocess.DEVNULL),
            as_process=True,
            env=dict.fromkeys(surplus, "") | pinned,
            **isolation,
            umask=0o022,  # what git checks out has the same modes on every host
            pass_fds=tuple(inherited_fds),
        )

    def _pinned_variables(self) -> dict[str, str]:
        """Return the environment variables that every command of this repository gets: identity, language, no prompts,
        and the repository's paths. Except for the owner's commands they also switch off the user's and system's
        configuration and every transport."""
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


def _find_program(name: str) -> str:
    """Return the path of a program, so that it is not looked for in every directory of the PATH each time; its name
    where it is in none of them."""
    return _find_on_path(name, os.environ.get("PATH", os.defpath))


@lru_cache
def _find_on_path(name: str, path: str) -> str:
    return shutil.which(name, path=path) or name


def _matters_when_empty(name: str) -> bool:
    """Return True for a `GIT_…` variable that git takes for something even when it is empty. Those about remotes do not
    count: no command in a vault asks a remote."""
    return name.startswith("GIT_") and name not in _OWNER_NAMES


def _kill_process_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the command and every helper in its process group, wait for the command and close our pipes. A helper that
    has left the group is not waited for; it may keep the pipes open for as long as it lives."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):  # closing flushes what was still to be written
                pipe.close()

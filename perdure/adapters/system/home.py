"""PERDURE_HOME, one directory that holds everything Perdure keeps on a host: the paths in it, its privacy, the host's
id, and the secret key of the home; and the name of the user who runs this."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import stat
import uuid
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

from perdure.adapters.system.files import hold_lock, write_whole
from perdure.models.errors import BadInput
from perdure.models.limits import HOME_DISK_SHARE, PERSON_CHARS
from perdure.text import escape_path

_MACHINE_ID = Path("/etc/machine-id")


_HOME_ENTRIES = {"host-id", "key", "logs", "temporal.db", "vaults", "workspaces"}
"""Every home that was used has one of these entries."""


_UNSPEAKABLE = re.compile(r"[:\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that no path of ours may have: some program it is given to knows no quotation for them."""


@dataclass(frozen=True)
class Home:
    """Paths below PERDURE_HOME. Nothing is created until it is needed."""

    root: Path

    @classmethod
    def find(cls) -> Home:
        """Return the home that PERDURE_HOME names, else the one in the platform's data directory; nothing is created.

        Raises BadInput where it begins with the `~` of a user that does not exist, and for a path that cannot be told
        to every program that is given it: a colon ends a path in PATH and its like, a line break in git's own files.
        """
        configured = os.environ.get("PERDURE_HOME")
        fix = "set PERDURE_HOME to an absolute path without colons and control characters"
        try:
            path = (Path(configured) if configured else user_data_path("perdure")).expanduser().absolute()
        except RuntimeError:  # of expanduser
            raise BadInput("there is no such user", where=f"PERDURE_HOME {configured}", fix=fix) from None
        if _UNSPEAKABLE.search(str(path)):
            what = "the path of this home has a colon, a control character or bytes that are no text"
            raise BadInput(what, where=f"PERDURE_HOME {escape_path(str(path))}", fix=fix)
        return cls(path)

    def make_private(self) -> None:
        """Ensure that the home exists and only its owner can look into it.

        One that others can read is closed where it is ours. Raises OSError where that is not possible, and BadInput for
        a directory that holds other things, or is another user's: its mode is not ours to change.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self.root.stat()
        if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
            return
        names = {entry.name for entry in self.root.iterdir()}
        if status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX and (names & _HOME_ENTRIES or not names):
            self.root.chmod(0o700)
            return
        what = "PERDURE_HOME is a directory with other things in it that other people can look into"
        fix = "set PERDURE_HOME to a directory of its own, or chmod 700 it"
        if status.st_uid != os.geteuid():
            what, fix = "PERDURE_HOME belongs to another user than you", "set it to a directory of yours, or chown it"
        raise BadInput(what, where=str(self.root), fix=fix)

    @property
    def vaults(self) -> Path:
        return self.root / "vaults"

    @property
    def inflight(self) -> Path:
        """Return the directory in which each worker notes the activities that it has begun
        (perdure.adapters.worker.inflight)."""
        return self.root / "inflight"

    @property
    def caches(self) -> Path:
        """Return the directory of packages that setups have downloaded (perdure.adapters.sandbox.setup)."""
        return self.root / "packages"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def ports(self) -> Path:
        return self.root / "ports"

    @property
    def crashes(self) -> Path:
        return self.root / "crashes"

    def tree(self, delivery: str) -> Path:
        """Return the first place of a delivery's worktree; a later generation may live in `<delivery>~<n>`."""
        return self.root / "trees" / delivery

    def workspace(self, delivery: str) -> Path:
        """Return the directory of a workspace: record, lease, journal, spend log, replies."""
        return self.root / "workspaces" / delivery

    def trials(self, delivery: str) -> Path:
        """Return the directory for the checkouts of experiments on a delivery's change, while they run."""
        return self.workspace(delivery) / "trials"

    def host_id(self) -> str:
        """Return a name for this host that survives renames of the machine: made once, kept in file `host-id`.

        A cloned machine (same file, other machine-id) gets a new one: two hosts must not share a queue.
        """
        path, machine = self.root / "host-id", _read_machine_id()
        if name := _read_host_name(path, machine):
            return name
        with hold_lock(path.with_suffix(".lock")):  # of two new workers, one makes the name, the other reads it
            if not (name := _read_host_name(path, machine)):
                name = uuid.uuid4().hex[:12]
                write_whole(path, f"{name} {machine}\n".encode(), mode=0o644)
        return name

    def key(self) -> bytes:
        """Return the secret of this home, made at the first call: it shows that a request or a contract comes from
        here.

        It closes the home to others first. Raises BadInput when the home is another user's, or is open to others and
        holds other things; OSError when it cannot be closed, read or written.
        """
        self.make_private()
        path = self.root / "key"
        with hold_lock(path.with_suffix(".lock")):
            if not path.exists():
                write_whole(path, os.urandom(32))
        return path.read_bytes()

    def size_limit(self, gigabytes: float | None) -> int:
        """Return how many bytes the home may take: those that its owner has set, else HOME_DISK_SHARE of its disk."""
        share = shutil.disk_usage(self.root).total * HOME_DISK_SHARE
        return int(share if gigabytes is None else gigabytes * 1e9)

    def queue(self, name: str = "perdure") -> str:
        """Return the task queue of everything that touches worktrees on this host.

        name  the beginning of its name; another one than the default gives a queue of its own
        """
        return f"{name}-{self.host_id()}"

    def command_queue(self) -> str:
        """Return the task queue of the activities on this host that run a repository's commands: their slots are fewer
        than those of turns, which mostly wait for a model."""
        return self.queue("perdure-commands")


def _read_host_name(path: Path, machine: str) -> str:
    """Return the host's name from its file; empty: there is no file, or the name was made for another machine."""
    try:
        name, named_machine = [*path.read_text().split(), "", ""][:2]
    except FileNotFoundError:
        return ""
    return name if not machine or named_machine in ("", machine) else ""


def _read_machine_id() -> str:
    """Return the machine's id; empty where it has none: a host name would change with every container and network."""
    try:
        return _MACHINE_ID.read_text().strip()
    except OSError:
        return ""


def login_name() -> str:
    """Return the login name of this process, for the record of what is decided; its user id where there is none."""
    try:
        return getpass.getuser()[:PERSON_CHARS]
    except (OSError, KeyError):
        return str(os.getuid())

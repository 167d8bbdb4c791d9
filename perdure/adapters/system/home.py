"""PERDURE_HOME: one directory that holds everything Perdure keeps on a host."""

from __future__ import annotations

import os
import stat
import uuid
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

from perdure.adapters.system.files import locked, write_whole
from perdure.models.errors import BadInput

_MACHINE_ID = Path("/etc/machine-id")


_OURS = {"host-id", "key", "logs", "temporal.db", "vaults", "workspaces"}
"""One of these is in every home that was used."""


@dataclass(frozen=True)
class Home:
    """Paths below PERDURE_HOME. Nothing is created until it is needed."""

    root: Path

    @classmethod
    def find(cls) -> Home:
        """PERDURE_HOME, else the platform's data directory."""
        configured = os.environ.get("PERDURE_HOME")
        try:
            return cls((Path(configured) if configured else user_data_path("perdure")).expanduser().absolute())
        except RuntimeError:  # of expanduser
            fix = "set PERDURE_HOME to an absolute path"
            raise BadInput("there is no such user", where=f"PERDURE_HOME {configured}", fix=fix) from None

    def make_private(self) -> None:
        """Make sure that the home exists and only its owner can look into it. OSError when that is not possible.

        One that others can read is closed when it is ours. BadInput for a directory that holds other things, or is
        somebody else's: its mode is not ours to change.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = self.root.stat()
        if there.st_uid == os.geteuid() and not there.st_mode & 0o077:
            return
        names = {entry.name for entry in self.root.iterdir()}
        if there.st_uid == os.geteuid() and not there.st_mode & stat.S_ISVTX and (names & _OURS or not names):
            self.root.chmod(0o700)
            return
        what = "PERDURE_HOME is a directory with other things in it that other people can look into"
        fix = "set PERDURE_HOME to a directory of its own, or chmod 700 it"
        if there.st_uid != os.geteuid():
            what, fix = "PERDURE_HOME belongs to another user than you", "set it to a directory of yours, or chown it"
        raise BadInput(what, where=str(self.root), fix=fix)

    @property
    def vaults(self) -> Path:
        return self.root / "vaults"

    @property
    def inflight(self) -> Path:
        return self.root / "inflight"

    @property
    def caches(self) -> Path:
        """Packages that setups have downloaded (perdure.adapters.sandbox.packages)."""
        return self.root / "packages"

    @property
    def seeds(self) -> Path:
        """Output of compilers on base branches (perdure.adapters.checks.seeds)."""
        return self.root / "seeds"

    @property
    def checkouts(self) -> Path:
        """Files of large repositories that nobody uses (perdure.adapters.git.checkouts)."""
        return self.root / "checkouts"

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
        """The directory of the checkouts of experiments on its change, for as long as they run."""
        return self.workspace(delivery) / "trials"

    def host_id(self) -> str:
        """A name for this host that survives renames of the machine: made once, kept in `host-id`.

        A cloned machine (same file, other machine-id) gets a new one: two hosts must not share a queue (H24).
        """
        path, machine = self.root / "host-id", _machine_id()
        if name := _named(path, machine):
            return name
        with locked(path.with_suffix(".lock")):  # of two first workers one makes the name, the other reads it
            if not (name := _named(path, machine)):
                name = uuid.uuid4().hex[:12]
                write_whole(path, f"{name} {machine}\n".encode(), mode=0o644)
        return name

    def key(self) -> bytes:
        """The secret of this home, made once: it shows that a request or a contract comes from here."""
        self.make_private()
        path = self.root / "key"
        with locked(path.with_suffix(".lock")):
            if not path.exists():
                write_whole(path, os.urandom(32))
        return path.read_bytes()

    def queue(self, name: str = "perdure") -> str:
        """The task queue of everything that touches worktrees on this host; another `name` for one of its own."""
        return f"{name}-{self.host_id()}"


def _named(path: Path, machine: str) -> str:
    """The name in the file, or empty when there is none for this machine."""
    try:
        name, seen = [*path.read_text().split(), "", ""][:2]
    except FileNotFoundError:
        return ""
    return name if not machine or seen in ("", machine) else ""


def _machine_id() -> str:
    """Empty where there is none: a host name would change with every container and every network."""
    try:
        return _MACHINE_ID.read_text().strip()
    except OSError:
        return ""

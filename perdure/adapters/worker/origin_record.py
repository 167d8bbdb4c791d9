"""The workflow runs whose origin this home has asked the server about and accepted: a file of keyed hashes, by which
every worker of the home knows that it need not ask again."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cached_property

from perdure.adapters.system.files import hold_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.models.delivery.request import keyed_hash

ACCEPTED_BYTES = 8_000_000
"""Size of the file at which its older half is removed, some 120,000 runs: a run that is forgotten is asked about again,
which takes the server milliseconds."""

Execution = tuple[str, str]
"""The workflow id and the run id of a run."""


class AcceptedRuns:
    """Runs that were accepted by a worker of one home. Its file holds hashes by the home's key and nothing else: no
    client of the server can make one, and nothing tells of the runs. One thread asks, others may add."""

    def __init__(self, home: Home) -> None:
        self._home, self._path = home, home.root / "accepted-runs"
        self._hashes = set[str]()
        self._inode = self._offset = 0

    def __contains__(self, execution: Execution) -> bool:
        """Return True when a worker of this home has accepted the run. Reads what others have added to the file."""
        run_hash = self._hash_run(execution)
        if run_hash not in self._hashes:
            self._read_additions()
        return run_hash in self._hashes

    def add(self, execution: Execution) -> None:
        """Record that a run is accepted. A power cut may lose it: then it is asked about again. Raises OSError when the
        file cannot be written."""
        line = f"{self._hash_run(execution)}\n".encode()  # the key comes first: it makes the home, its owner's alone
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
            is_full = os.fstat(descriptor).st_size > ACCEPTED_BYTES
        finally:
            os.close(descriptor)
        if is_full:
            self._remove_older_half()

    def _read_additions(self) -> None:
        """Read the lines that were added since the last time, or all of a file that was replaced."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            if inode != self._inode:
                self._inode, self._offset = inode, 0
                self._hashes.clear()
            file.seek(self._offset)
            whole_lines = file.read().rpartition(b"\n")[0]
            self._hashes.update(whole_lines.decode("ascii", "replace").split())
            self._offset += len(whole_lines) + bool(whole_lines)

    def _remove_older_half(self) -> None:
        """Write the file anew with the newer half of its lines, unless another process has done so meanwhile."""
        with hold_lock(self._path.with_suffix(".lock")):
            if self._path.stat().st_size > ACCEPTED_BYTES:
                lines = self._path.read_bytes().splitlines(keepends=True)
                write_whole(self._path, b"".join(lines[len(lines) // 2 :]))

    def _hash_run(self, execution: Execution) -> str:
        return keyed_hash(self._key, "run", json.dumps(execution).encode())

    @cached_property
    def _key(self) -> bytes:
        return self._home.key()

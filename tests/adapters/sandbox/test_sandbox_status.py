"""What a sandbox leaves on disk about itself is read for what it is, and no more."""

from __future__ import annotations

import fcntl
import json
import os

from perdure.adapters.sandbox.status import REGION, empty_if_unused, end_sandboxes, parse_status


def test_a_reused_process_id_is_not_killed(tmp_path):
    """The lock file of a host that was restarted names processes that are someone else's now: this one's."""
    lines = [{"child-pid": os.getpid(), "pid-namespace": 1}, {"child-pid": os.getpid(), "started": 1}]
    lock = tmp_path / "lock"
    lock.write_bytes(b"".join((json.dumps(line).encode() + b"\n").ljust(REGION, b"\n") for line in lines))
    assert end_sandboxes(lock, 1.0)
    assert lock.stat().st_size == 0


def test_a_line_cut_short_by_a_death_counts_as_not_written():
    status = parse_status(b'{ "child-pid": 7, "pid-namespace": 9 }\n\0\0\n{ "exit-co')
    assert status.holder is not None
    assert (status.holder.pid, status.holder.namespace, status.exit_code) == (7, 9, None)


def test_a_lock_file_in_use_is_not_emptied(tmp_path):
    lock = tmp_path / "lock"
    lock.write_bytes(b"x" * REGION)
    with open(lock, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        empty_if_unused(lock)
        assert lock.stat().st_size == REGION
    empty_if_unused(lock)
    assert lock.stat().st_size == 0

"""A run's scratch files: in memory where there is room, and gone afterwards, however it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scratch import MEMORY, roomy, run
from tests.waiting import until

ROOT = Path(__file__).parent.parent
WRITE = "import os, pathlib, sys; d = pathlib.Path(os.environ['TMPDIR'], 'kept'); d.mkdir(); (d / 'f').touch();"
IN_MEMORY = pytest.mark.skipif(not roomy(MEMORY, 0.01), reason="a file system in memory is not there")


def mounted(tmp_path: Path, place: Path, kind: str = "tmpfs", options: str = "rw") -> Path:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nit {place} {kind} {options} 0 0\n")
    return mounts


def test_there_is_no_room_on_a_disk_nor_where_memory_is_small_missing_or_for_reading_only(tmp_path: Path) -> None:
    assert roomy(tmp_path, 0, mounted(tmp_path, tmp_path))
    assert not roomy(tmp_path, 0, mounted(tmp_path, tmp_path, "ext4"))
    assert not roomy(tmp_path, 1e9, mounted(tmp_path, tmp_path))
    assert not roomy(tmp_path / "missing", 0, mounted(tmp_path, tmp_path / "missing"))
    assert not roomy(tmp_path, 0, mounted(tmp_path, tmp_path, options="ro,relatime"))
    assert not roomy(tmp_path, 0, mounted(tmp_path, tmp_path, options="rw,nosuid,noexec"))
    assert not roomy(tmp_path, 0, tmp_path / "no such mounts")


@IN_MEMORY
@pytest.mark.parametrize(
    ("ends", "code"), [("", 0), ("sys.exit(5)", 5), ("d.chmod(0o500); os.kill(os.getpid(), 9)", 128 + signal.SIGKILL)]
)
def test_they_are_in_memory_and_gone_afterwards_however_the_command_ended(
    ends: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    told = "print(os.environ['TMPDIR'], flush=True);"
    ended = run([sys.executable, "-c", WRITE + told + ends], {"PATH": os.environ["PATH"]}, MEMORY, 0.01)
    assert ended == code
    line, scratch = capfd.readouterr().out.splitlines()
    assert scratch in line
    assert Path(scratch).parent == MEMORY
    assert not Path(scratch).exists()
    assert not Path(f"{scratch}.lock").exists()


def test_a_directory_that_the_user_names_is_used_and_left_with_all_that_is_in_it(tmp_path: Path) -> None:
    assert run([sys.executable, "-c", WRITE], {**os.environ, "TMPDIR": str(tmp_path)}, MEMORY, 0.01) == 0
    assert (tmp_path / "kept" / "f").exists()


def test_where_there_is_no_memory_the_command_runs_as_it_would_without(tmp_path: Path) -> None:
    asked = "import os, sys; sys.exit(7 if 'TMPDIR' not in os.environ else 1)"
    env = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    assert run([sys.executable, "-c", asked], env, tmp_path / "missing") == 7


@IN_MEMORY
async def test_what_a_killed_run_left_is_removed_by_the_next_but_never_what_is_in_use(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    told = tmp_path / "told"
    waits = f"import os, pathlib, time; pathlib.Path('{told}').write_text(os.environ['TMPDIR']); time.sleep(60)"
    asks = "import os, sys; from tests.scratch import MEMORY, run; run(sys.argv[1:], os.environ, MEMORY, 0.01)"
    command = [sys.executable, "-c", asks, sys.executable, "-c", waits]
    first = subprocess.Popen(command, env=env, cwd=ROOT, start_new_session=True)
    scratch = Path(await until(lambda: told.exists() and told.read_text()))

    assert run(["true"], {"PATH": os.environ["PATH"]}, MEMORY, 0.01) == 0
    assert scratch.exists()
    first.kill()
    first.wait()
    assert run(["true"], {"PATH": os.environ["PATH"]}, MEMORY, 0.01) == 0
    assert scratch.exists(), "the command still runs"
    os.killpg(first.pid, signal.SIGKILL)
    await until(lambda: run(["true"], {"PATH": os.environ["PATH"]}, MEMORY, 0.01) == 0 and not scratch.exists())

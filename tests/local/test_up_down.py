"""Up, down and what `deliver` starts, with a worker that only lives."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import sys
from pathlib import Path

import pytest

from perdure.adapters.system.files import is_locked
from perdure.adapters.system.home import Home
from perdure.local.places import Places, read_running_supervisor
from perdure.local.server import find_server
from perdure.local.up import bring_down, bring_up, ensure_running
from perdure.models.errors import BadInput, PerdureError
from tests.engine import until
from tests.waiting import patient

pytestmark = pytest.mark.story

WORKER = [sys.executable, "-c", "import signal; signal.signal(15, lambda *_: exit(0)); signal.pause(); signal.pause()"]


async def test_up_is_idempotent_and_down_ends_all_of_it(home: Home) -> None:
    said: list[str] = []
    await bring_up(home, True, said.append, command=WORKER)
    first = read_running_supervisor(home)
    assert first is not None
    assert first.idle_exit is None
    await bring_up(home, True, said.append, command=WORKER)
    assert read_running_supervisor(home) == first
    assert any("runs already" in line for line in said)
    await bring_down(home, said.append)
    assert not is_locked(Places(home).supervisor_lock)
    assert not is_locked(Places(home).worker_lock)
    assert await find_server(home) is None
    await bring_down(home, said.append)
    assert said[-1] == "nothing was running"


@pytest.mark.parametrize("interrupted", [False, True])
async def test_what_is_ending_is_waited_for_and_then_started_anew(
    interrupted: bool, home: Home, tmp_path: Path
) -> None:
    said: list[str] = []
    go = tmp_path / "go"
    body = f"import os, signal, time\nsignal.pthread_sigmask(0, [15])\nopen({str(tmp_path / 'ready')!r}, 'w')\n"
    body += f"signal.sigwait([15])\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
    await bring_up(home, True, said.append, command=[sys.executable, "-c", body])
    await until((tmp_path / "ready").exists, 30)
    ending = asyncio.create_task(bring_down(home, said.append))
    await until(lambda: any("ending the worker" in line for line in said), 10)
    before = read_running_supervisor(home)
    assert before is not None
    if interrupted:
        await until(lambda: (now := read_running_supervisor(home)) is not None and now.ending, 10)
        ending.cancel()
    again = asyncio.create_task(bring_up(home, True, said.append, command=WORKER))
    await until(lambda: any("waiting for what is ending" in line for line in said), 10)
    if not interrupted:
        await until(lambda: any("a turn is still at work: 5 s of at most 90" in line for line in said), 30)
    go.touch()
    await asyncio.gather(ending, again, return_exceptions=interrupted)
    now = read_running_supervisor(home)
    assert now is not None
    assert now.pid != before.pid
    assert await find_server(home) is not None
    await bring_down(home, said.append)


async def test_deliver_starts_what_is_missing_says_so_and_up_makes_it_stay(home: Home) -> None:
    said: list[str] = []
    await asyncio.gather(*(ensure_running(home, said.append, command=WORKER) for _ in range(2)))
    record = read_running_supervisor(home)
    assert record is not None
    assert record.idle_exit == 900
    assert sum(line.startswith("starting Temporal at") for line in said) == 1, "one started it, the other found it"
    assert any("15 idle minutes" in line for line in said)
    said.clear()
    await ensure_running(home, said.append, command=WORKER)
    assert said == [], "nothing was started"
    await bring_up(home, True, said.append, command=WORKER)
    await until(lambda: (now := read_running_supervisor(home)) is not None and now.idle_exit is None, 10)
    now = read_running_supervisor(home)
    assert now is not None
    assert now.worker_pid == record.worker_pid
    await bring_down(home, said.append)
    begun = set(re.findall(r"supervisor (\d+):", Places(home).worker_log.read_text()))
    assert begun == {str(record.pid)}, "a second one that begins slowly would have stayed when the first was ended"


async def test_a_delivery_is_not_given_to_a_worker_with_another_key(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-mine")
    await ensure_running(home, lambda _: None, command=WORKER)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "other")
    with pytest.raises(BadInput, match="another key") as refused:
        await ensure_running(home, lambda _: None, command=WORKER)
    assert "perdure down" in refused.value.fix
    assert b"key-of-mine" not in Places(home).supervisor_record.read_bytes()
    await bring_down(home, lambda _: None)


async def test_with_another_temporal_configured_deliver_starts_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    await ensure_running(home, lambda _: None, command=WORKER)
    assert not home.root.exists()


async def test_ctrl_c_in_the_foreground_ends_worker_and_server(home: Home, tmp_path: Path) -> None:
    script = tmp_path / "up.py"
    script.write_text(
        "import asyncio, os\n"
        "from perdure.adapters.system.home import Home\n"
        "from perdure.local.up import bring_up\n"
        f"asyncio.run(bring_up(Home.find(), False, lambda line: print(line, flush=True), command={WORKER!r}))\n"
        "os._exit(0)\n"  # like the command line: the Temporal SDK may crash in an ordinary exit
    )
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), stdout=asyncio.subprocess.PIPE)
    await until(lambda: (now := read_running_supervisor(home)) is not None and now.worker_pid, 30)
    process.send_signal(signal.SIGINT)
    said, _ = await asyncio.wait_for(process.communicate(), patient(30))
    assert process.returncode == 0
    assert said.decode().splitlines()[-1] == "Temporal ended"
    assert not is_locked(Places(home).worker_lock)
    assert await find_server(home) is None


async def test_a_terminal_that_is_closed_ends_worker_and_server_as_ctrl_c_does(home: Home, tmp_path: Path) -> None:
    script = tmp_path / "up.py"
    script.write_text(
        "import asyncio, fcntl, os, termios\n"
        "from perdure.adapters.system.home import Home\n"
        "from perdure.local.up import bring_up\n"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        f"asyncio.run(bring_up(Home.find(), False, lambda line: print(line, flush=True), command={WORKER!r}))\n"
        "os._exit(0)\n"
    )
    terminal, inside = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdin=inside, stdout=inside, stderr=inside, start_new_session=True
    )
    os.close(inside)
    await until(lambda: (now := read_running_supervisor(home)) is not None and now.worker_pid, 30)
    os.close(terminal)  # nobody reads any more, and everything in its foreground gets SIGHUP
    assert await asyncio.wait_for(process.wait(), patient(30)) == 0
    assert not is_locked(Places(home).worker_lock)
    assert await find_server(home) is None


async def test_a_supervisor_that_cannot_start_is_reported_with_its_last_words(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "argparse.py").write_text("raise RuntimeError('this installation is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(PerdureError, match="did not start: RuntimeError: this installation is broken") as error:
        await bring_up(home, True, lambda _: None, command=WORKER)
    assert error.value.where == str(Places(home).worker_log)
    await bring_down(home, lambda _: None)


async def test_modules_in_the_current_directory_are_not_run(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit('a module of the target repository was run')")
    monkeypatch.chdir(tmp_path)
    await bring_up(home, True, lambda _: None, command=WORKER)
    record = read_running_supervisor(home)
    assert record is not None
    assert Path(f"/proc/{record.pid}/cwd").resolve() == home.root
    await bring_down(home, lambda _: None)


async def test_a_home_that_is_a_file_is_bad_input(home: Home) -> None:
    home.root.write_text("")
    with pytest.raises(BadInput, match="not writable"):
        await bring_up(home, True, lambda _: None, command=WORKER)
    assert os.listdir(home.root.parent) == ["home"]

"""The page beside the workers: started, kept, ended; with no token that lets strangers in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import psutil
import pytest

from perdure.adapters.system.files import is_locked, try_lock
from perdure.adapters.system.home import Home
from perdure.local.page import (
    ensure_page_token,
    page_address,
    read_page_record,
    wait_for_page_status,
    wait_until_token_invalid,
    write_page_record,
)
from perdure.local.places import Places
from perdure.models.errors import PerdureError
from tests.engine import until
from tests.temporal_server import joined
from tests.waiting import patient


async def perdure(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure.cli", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "ANTHROPIC_API_KEY": "a-key-nobody-may-see"},
    )
    async with asyncio.timeout(patient(90)):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def opens(address: str) -> bool:
    """A person follows the address."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(total=60)) as session:
        try:
            async with session.get(address) as first:
                assert first.status == 200, await first.text()
            async with session.get(address.partition("?")[0]) as shown:
                return "Nothing waits for you" in await shown.text()
        except aiohttp.ClientConnectionError:
            return False


async def refuses(address: str) -> bool:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        try:
            async with session.get(address) as answer:
                return answer.status == 401
        except aiohttp.ClientConnectionError:
            return False


@pytest.mark.story
@pytest.mark.long
@pytest.mark.timeout(240)
async def test_up_keeps_the_page_ui_and_page_name_it_and_down_ends_it(home: Home) -> None:
    code, out, err = await perdure("up", "--detach")
    assert code == 0, out + err
    (address,) = [line.removeprefix("page at ") for line in out.splitlines() if line.startswith("page at ")]
    assert await opens(address)
    first = read_page_record(home)
    assert first is not None
    assert b"a-key-nobody" not in Path(f"/proc/{first.pid}/cmdline").read_bytes()
    assert stat.S_IMODE((home.root / "page.token").stat().st_mode) == 0o600
    assert address.partition("token=")[2] not in Places(home).worker_log.read_text()

    assert f"page {address}" in (await perdure("ui", "--print"))[1].splitlines()
    code, out, _ = await perdure("page", "--json")
    assert (code, json.loads(out)["address"]) == (0, address), "the one that is there, and no other"

    os.kill(first.pid, signal.SIGKILL)
    again = await until(lambda: (now := read_page_record(home)) is not None and now.pid != first.pid and now)
    await until(lambda: opens(f"{again.url}/?{address.partition('?')[2]}"))

    async def at_the_page(look: Callable[[str], Awaitable[bool]], asked: str) -> bool:
        """Where it is by now: a port that was free a moment ago may be somebody else's."""
        there = read_page_record(home)
        return there is not None and await look(f"{there.url}/?{asked}")

    (home.root / "page.token").unlink()  # whoever has had it is out, a page with another one is there
    await until(lambda: at_the_page(refuses, address.partition("?")[2]))
    token = await until(lambda: home.root.joinpath("page.token").exists() and ensure_page_token(home))
    assert token not in address
    await until(lambda: at_the_page(opens, f"token={token}"))

    code, out, err = await perdure("down")
    assert code == 0, out + err
    assert not is_locked(Places(home).page_lock)
    assert not psutil.pid_exists(again.pid)
    assert "page" not in (await perdure("ui", "--print"))[1]


@pytest.mark.story
@pytest.mark.timeout(240)
async def test_a_page_of_its_own_says_the_next_port_ends_by_itself_and_refuses_to_be_read_on_its_way(
    home: Home,
) -> None:
    code, _, err = await perdure("page", "--host", "0.0.0.0")
    assert code == 2
    assert "beyond this machine the token would be readable" in err
    assert "Traceback" not in err
    code, _, err = await perdure("page")
    assert (code, "Temporal is not running" in err) == (3, True)

    assert (await perdure("server", "start"))[0] == 0
    try:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            for number in (signal.SIGINT, signal.SIGTERM):
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "perdure.cli", "page", "--port", str(port), "--no-open"),
                    stdout=asyncio.subprocess.PIPE,
                )
                assert process.stdout is not None
                async with asyncio.timeout(patient(60)):
                    taken = (await process.stdout.readline()).decode()
                    address = (await process.stdout.readline()).decode().strip()
                assert f"port {port} is taken: " in taken
                assert await opens(address)
                served = psutil.Process(process.pid).children(recursive=True)
                assert served
                process.send_signal(number)
                async with asyncio.timeout(patient(30)):
                    assert await process.wait() == 0
                assert not any(one.is_running() for one in served)
                assert not await opens(address)
    finally:
        await perdure("server", "stop")


BAD: dict[str, Callable[[Path], object]] = {
    "a directory": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path),
    "not UTF-8": lambda path: path.write_bytes(b"\xff" * 64),
    "empty": lambda path: path.touch(),
    "a part": lambda path: path.write_text("ab12"),
}


def gone(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@contextlib.contextmanager
def page_process(home: Home) -> Iterator[subprocess.Popen[bytes]]:
    """As the supervisor starts it."""
    with (home.root / "page.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-P", "-m", "perdure.page"], cwd=home.root, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(patient(30))


async def answer(url: str, token: str = "") -> int:
    """The status with which a page answers a person who has that token; 0: there is none."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=patient(60))) as session:
        try:
            async with session.get(f"{url}/?token={token}") as answer:
                return answer.status
        except aiohttp.ClientConnectionError:
            return 0


@pytest.mark.parametrize("bad", BAD)
async def test_a_token_that_cannot_be_used_is_one_line_and_ends_the_sessions_of_a_page(home: Home, bad: str) -> None:
    token, path = ensure_page_token(home), home.root / "page.token"
    path.unlink()
    BAD[bad](path)
    with pytest.raises(PerdureError, match="the page's token") as said:
        ensure_page_token(home)
    assert (said.value.where, "rm -r" in said.value.fix) == (str(path), True)
    assert len(said.value.what.splitlines()) == 1
    assert (await wait_for_page_status(home)).startswith("no page: the page's token")
    async with asyncio.timeout(patient(30)):
        await wait_until_token_invalid(home, token, asyncio.Event())
    gone(path)
    assert len(ensure_page_token(home)) == 64


@pytest.mark.story
@pytest.mark.timeout(240)
async def test_a_page_whose_token_is_damaged_serves_nobody_says_so_once_and_comes_back_with_another(home: Home) -> None:
    path = home.root / "page.token"
    async with joined(home):
        with page_process(home) as process:
            first = await until(lambda: read_page_record(home), patient(60))
            token = ensure_page_token(home)
            assert await answer(first.url, token) == 200
            path.write_text("")
            log = home.root / "page.log"
            await until(lambda: "the page's token is damaged" in log.read_text(), patient(60))
            assert read_page_record(home) is None
            assert [await answer(first.url, one) for one in ("", token)] == [0, 0]
            path.unlink()
            again = await until(lambda: read_page_record(home), patient(60))
            assert await answer(again.url, token) == 401
            assert await answer(again.url, ensure_page_token(home)) == 200
            process.terminate()
            assert await asyncio.to_thread(process.wait, patient(30)) == 0
    assert (log.read_text().count("the page's token is damaged"), "Traceback" in log.read_text()) == (1, False)


@pytest.mark.timeout(120)
async def test_the_command_that_finds_a_damaged_token_says_what_where_and_the_fix(home: Home) -> None:
    async with joined(home):
        (home.root / "page.token").write_text("")
        command = [sys.executable, "-m", "perdure.cli", "page", "--no-open"]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=patient(60))
    what, where, fix = ran.stderr.splitlines()
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "the page's token is damaged" in what
    assert where == f"  where: {home.root / 'page.token'}"
    assert "rm -r" in fix


@pytest.mark.story
@pytest.mark.timeout(240)
async def test_a_dead_pages_address_is_named_by_nobody_while_the_next_one_has_not_said_where_it_is(home: Home) -> None:
    async with joined(home):
        with page_process(home) as dead:
            await until(lambda: read_page_record(home), patient(60))
            record = Places(home).page_record.read_bytes()
            dead.kill()
        (home.root / "page.token").write_text("")  # holds the next one back
        assert Places(home).page_record.read_bytes() == record
        with page_process(home):
            await until(lambda: is_locked(Places(home).page_lock), patient(60))
            assert read_page_record(home) is None
            assert page_address(home) == ""


def test_the_page_that_holds_the_lock_is_the_one_that_is_named(home: Home) -> None:
    home.make_private()
    lock = try_lock(Places(home).page_lock)
    assert lock is not None
    try:
        write_page_record(home, "http://127.0.0.1:1")
        found = read_page_record(home)
        assert found is not None
        assert found.pid == os.getpid()
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait(patient(30))
        Places(home).page_record.write_text(found.model_copy(update={"pid": dead.pid}).model_dump_json())
        assert read_page_record(home) is None
    finally:
        os.close(lock)

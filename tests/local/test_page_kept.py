"""The page beside the workers: `up` starts it and says where it is, it comes again when killed, `down` ends it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import psutil
import pytest

from perdure.adapters.system.files import is_locked
from perdure.adapters.system.home import Home
from perdure.local.page import ensure_page_token, read_page_record
from perdure.local.places import Places
from tests.engine import until
from tests.waiting import patient

pytestmark = pytest.mark.story


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

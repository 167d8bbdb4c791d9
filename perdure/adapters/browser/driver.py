"""Runs inside the sandbox, alone: starts the application, waits for it, takes its pages with a browser.

Started as `python -I -S driver.py SPEC` with nothing of Perdure in sight, so it imports the standard library and
Playwright only. SPEC is JSON, written by perdure.adapters.browser.capture. What it finds goes into SPEC["results"]:
`page-<n>.png`, and `said.jsonl`, a line at a time, so that what was found before an end by force is kept. Nothing here
is trusted by the engine: the application runs beside it as the same user.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import sys
from collections import deque
from typing import Any
from urllib.parse import urlsplit

STARTING = (502, 503, 504)
"""Answers of a proxy whose server is not up yet."""

CHUNK = 65_536


class App:
    """The application's processes, and the end of what they wrote: never more of it in memory."""

    def __init__(self, process: asyncio.subprocess.Process, keep: int) -> None:
        self.process, self._keep = process, keep
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, script: str, env: dict[str, str], keep: int) -> App:
        process = await asyncio.create_subprocess_exec(
            *("/bin/bash", "-c", script),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        return cls(process, keep)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while chunk := await self.process.stdout.read(CHUNK):
            self._chunks.append(chunk)
            self._size += len(chunk)
            while self._size - len(self._chunks[0]) > self._keep:
                self._size -= len(self._chunks.popleft())

    async def tail(self) -> str:
        """Return what it wrote last; after its end, all that is in the pipe."""
        if self.process.returncode is not None:
            await asyncio.wait({self._reading}, timeout=1)
        return b"".join(self._chunks)[-self._keep :].decode(errors="replace")

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._reading.cancel()


class DriverLines:
    """The lines the engine reads."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)

    def line(self, **fields: object) -> None:
        os.write(self._fd, json.dumps(fields).encode() + b"\n")


async def status_of(url: str, patience_s: float) -> int | None:
    """The status an address answers with; None: nobody does, or not with HTTP."""
    parts = urlsplit(url)
    tls = None
    if parts.scheme == "https":
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    port = parts.port or (443 if tls else 80)
    host = parts.hostname or "127.0.0.1"
    try:
        async with asyncio.timeout(patience_s):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=CHUNK)
            try:
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                writer.write(f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode())
                words = (await reader.readline()).split()
            finally:
                writer.close()
    except (OSError, ValueError, TimeoutError):
        return None
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() else None


async def ready(app: App, spec: dict[str, Any]) -> str:
    """Wait until the application answers; why it does not, or empty."""
    limits = spec["limits"]
    loop = asyncio.get_running_loop()
    began = loop.time()
    deadline, last = began + limits["ready_s"], None
    while True:
        last = await status_of(spec["ready"], limits["probe_s"])
        if last is not None and last not in STARTING:
            return ""
        code = app.process.returncode
        if code is not None:
            if code != 0:
                at_once = " at once" if loop.time() - began < limits["at_once_s"] else ""
                return f"the app exited{at_once} ({_ending(code)})"
            deadline = min(deadline, loop.time() + limits["detached_s"])  # it may have left a server behind
        if loop.time() > deadline:
            break
        await asyncio.sleep(0.1)
    if app.process.returncode == 0:
        return f"the app exited (exit code 0) and nothing answers at {spec['ready']}"
    answers = f"answers {last}" if last is not None else "does not answer"
    return f"the app was not ready after {limits['ready_s']:g} s: {spec['ready']} {answers}"


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"


class Chromium:
    """The system's Chromium behind Playwright, started anew when it has gone."""

    def __init__(self, playwright: Any, spec: dict[str, Any]) -> None:
        self._playwright, self._spec = playwright, spec
        self._browser: Any = None

    async def page(self) -> Any:
        """A page in a profile of its own: one page of the application decides nothing about the next."""
        if self._browser is None or not self._browser.is_connected():
            self._browser = await self._playwright.chromium.launch(
                executable_path=self._spec["chromium"],
                headless=True,
                chromium_sandbox=False,  # it needs namespaces of its own; everything here is in one already
                args=self._spec["arguments"],
                timeout=self._spec["limits"]["launch_s"] * 1000,
            )
        context = await self._browser.new_context(
            viewport={"width": self._spec["limits"]["width"], "height": self._spec["limits"]["viewport"]},
            accept_downloads=False,
            ignore_https_errors=True,
            service_workers="block",
            reduced_motion="reduce",
            locale="en-US",
        )
        return await context.new_page()


async def take(browser: Chromium, spec: dict[str, Any], number: int, address: str) -> str:
    """One page as `page-<number>.png`; what is to be said about it, or empty."""
    limits = spec["limits"]
    notes: list[str] = []
    errors: list[str] = []
    page = await browser.page()
    try:
        page.on("crash", lambda _: notes.append("the page crashed"))
        page.on("pageerror", lambda error: errors.append(str(error)) if len(errors) < limits["errors"] else None)
        page.on("console", lambda said: _heard(said, errors, limits["errors"]))
        notes += await _visit(page, address, limits)
        taken = await _picture(page, spec, number, bool(notes))
        if taken:
            notes.append(taken)
    finally:
        with contextlib.suppress(Exception):  # whatever it dies of, the sandbox ends it
            await asyncio.wait_for(page.context.close(), limits["probe_s"])
    if errors:
        notes.append(
            "errors in its console: " + "; ".join(" ".join(e.split())[: limits["error_chars"]] for e in errors)
        )
    return "; ".join(dict.fromkeys(notes))


async def _visit(page: Any, address: str, limits: dict[str, Any]) -> list[str]:
    from playwright.async_api import Error, TimeoutError

    notes = []
    try:
        response = await page.goto(address, wait_until="load", timeout=limits["page_s"] * 1000)
    except TimeoutError:
        return [f"did not finish loading in {limits['page_s']:g} s"]
    except Error as error:
        return [f"does not load: {_first_line(error)}"]
    if response is not None and response.status >= 400:
        notes.append(f"answers {response.status}")
    if urlsplit(page.url)[:2] != urlsplit(address)[:2]:
        notes.append(f"leads to {page.url[:200]}")
    with contextlib.suppress(Error):  # what it goes on loading need not be waited for
        await page.wait_for_load_state("networkidle", timeout=limits["settle_s"] * 1000)
    return notes


async def _picture(page: Any, spec: dict[str, Any], number: int, noted: bool) -> str:
    """The page from its top, as much of it as the limits take; why there is no picture, or empty where that is known
    (`noted`) and where there is one."""
    from playwright.async_api import Error

    limits = spec["limits"]
    if page.url in ("about:blank", "") or page.url.startswith("chrome-error:"):
        return "" if noted else "nothing is to be seen"
    path = os.path.join(spec["results"], f"page-{number}.png")
    for height in (limits["height"], limits["viewport"]):
        clip = {"x": 0, "y": 0, "width": limits["width"], "height": height}
        try:
            data = await page.screenshot(
                clip=clip, full_page=True, animations="disabled", caret="hide", timeout=limits["page_s"] * 1000
            )
        except Error as error:
            return f"no picture: {_first_line(error)}"
        if len(data) <= limits["bytes"]:
            _write(path, data)
            return ""
    return f"no picture: it has {len(data):,} bytes"


def _write(path: str, data: bytes) -> None:
    """A file of our own: whatever the application put in its place, such as a pipe nobody reads, is not written to."""
    with contextlib.suppress(OSError):
        os.unlink(path)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)


def _heard(said: Any, errors: list[str], most: int) -> None:
    """Of what failed to load the address is told, too; an icon that nobody made is no error of the page."""
    address = str((said.location or {}).get("url", ""))
    if said.type != "error" or len(errors) >= most or address.endswith("/favicon.ico"):
        return
    errors.append(f"{said.text} ({address})" if said.text.startswith("Failed to load") else said.text)


def _first_line(error: Exception) -> str:
    """Playwright's own words, without its call log."""
    return str(error).strip().partition("\n")[0].removeprefix("Page.").removeprefix("goto: ")[:300]


async def main(spec: dict[str, Any]) -> None:
    _die_first()
    said = DriverLines(os.path.join(spec["results"], "said.jsonl"))
    limits = spec["limits"]
    app = await App.start(spec["start"], dict(os.environ), limits["tail"])
    try:
        if why := await ready(app, spec):
            said.line(note=why, tail=await app.tail())
            return
        _prepare_imports(spec)
        from playwright.async_api import async_playwright

        async with async_playwright() as playwright:
            browser = Chromium(playwright, spec)
            for number, address in enumerate(spec["pages"], start=1):
                said.line(page=number, note=await _bounded(browser, spec, number, address))
        code = app.process.returncode
        if code is not None and code != 0:
            said.line(note=f"the app exited while its pages were taken ({_ending(code)})", tail=await app.tail())
        said.line(done=True)
    finally:
        app.end()


def _die_first() -> None:
    """Make all of this end before the engine does where memory is short."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


async def _bounded(browser: Chromium, spec: dict[str, Any], number: int, address: str) -> str:
    """A page may hang anywhere, also where Playwright knows no timeout."""
    limits = spec["limits"]
    whole = limits["launch_s"] + 3 * limits["page_s"] + limits["settle_s"]
    try:
        return await asyncio.wait_for(take(browser, spec, number, address), whole)
    except TimeoutError:
        return f"gave no picture in {whole:g} s"
    except Exception as error:  # noqa: BLE001  # one page must not cost the others
        return f"no picture: {_first_line(error)}"


def _prepare_imports(spec: dict[str, Any]) -> None:
    """Playwright's own packages, and nothing that the application's environment says about Node or Playwright."""
    sys.path[:0] = spec["packages"]
    for name in [n for n in os.environ if n.startswith(("PLAYWRIGHT_", "NODE_", "PW_", "DEBUG"))]:
        del os.environ[name]


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

"""A program that runs inside the sandbox, alone: it starts the application, waits for it, and captures its pages with a
browser.

Started as `python -I -S driver.py SPEC` with nothing of Perdure in sight, so it imports the standard library and
Playwright only. SPEC is JSON, written by perdure.adapters.browser.capture. Its results go into SPEC["results"]:
`page-<n>.png`, and the report `said.jsonl`, a line at a time, so that what was reported before an end by force is kept.
Nothing here is trusted by the engine: the application runs beside it as the same user.
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
"""Statuses of a proxy whose server is not up yet."""

CHUNK = 65_536


class AppProcess:
    """The application's process, in a session of its own, and the last bytes of its output; no more of it is held in
    memory."""

    def __init__(self, process: asyncio.subprocess.Process, tail_bytes: int) -> None:
        self.process, self._tail_bytes = process, tail_bytes
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._reader = asyncio.create_task(self._read_output())

    @classmethod
    async def start(cls, script: str, env: dict[str, str], tail_bytes: int) -> AppProcess:
        """Start a Bash script as the application, in a session of its own, its stdout and stderr read as one, of which
        about the last `tail_bytes` are kept."""
        process = await asyncio.create_subprocess_exec(
            *("/bin/bash", "-c", script),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        return cls(process, tail_bytes)

    async def _read_output(self) -> None:
        """Read the output until it ends, and drop chunks from its beginning that the last `_tail_bytes` do not need."""
        assert self.process.stdout is not None
        while chunk := await self.process.stdout.read(CHUNK):
            self._chunks.append(chunk)
            self._size += len(chunk)
            while self._size - len(self._chunks[0]) > self._tail_bytes:
                self._size -= len(self._chunks.popleft())

    async def output_tail(self) -> str:
        """Return the last `_tail_bytes` bytes of the output as text. After the process's end it waits up to a second
        for what is still in the pipe."""
        if self.process.returncode is not None:
            await asyncio.wait({self._reader}, timeout=1)
        return b"".join(self._chunks)[-self._tail_bytes :].decode(errors="replace")

    def kill_group(self) -> None:
        """Kill the process group of the application, and stop reading its output."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._reader.cancel()


class ReportWriter:
    """The writer of the report that the engine reads, a new file."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)

    def write_line(self, **fields: object) -> None:
        """Append these fields to the report as one line of JSON."""
        os.write(self._fd, json.dumps(fields).encode() + b"\n")


async def fetch_status(url: str, timeout_s: float) -> int | None:
    """Send a GET request to a URL and return the status of the answer; None where nobody answers in time, or not with
    HTTP.

    Any certificate is accepted, and no redirect is followed.
    """
    parts = urlsplit(url)
    tls = None
    if parts.scheme == "https":
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    port = parts.port or (443 if tls else 80)
    host = parts.hostname or "127.0.0.1"
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=CHUNK)
            try:
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                writer.write(f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode())
                status_line = (await reader.readline()).split()
            finally:
                writer.close()
    except (OSError, ValueError, TimeoutError):
        return None
    return (
        int(status_line[1])
        if len(status_line) > 1 and status_line[0].startswith(b"HTTP/") and status_line[1].isdigit()
        else None
    )


async def wait_until_ready(app: AppProcess, spec: dict[str, Any]) -> str:
    """Wait until the application answers at spec["ready"], with anything but 502, 503 or 504. Return an empty text
    then, else the reason why it does not.

    It gives up after `ready_s`, at once when the application ends with an error, and `detached_s` after it ended with
    exit code 0: it may have left a server behind.
    """
    limits = spec["limits"]
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    deadline, last_status = started_at + limits["ready_s"], None
    while True:
        last_status = await fetch_status(spec["ready"], limits["probe_s"])
        if last_status is not None and last_status not in STARTING:
            return ""
        exit_code = app.process.returncode
        if exit_code is not None:
            if exit_code != 0:
                at_once = " at once" if loop.time() - started_at < limits["at_once_s"] else ""
                return f"the app exited{at_once} ({_exit_text(exit_code)})"
            deadline = min(deadline, loop.time() + limits["detached_s"])  # it may have left a server behind
        if loop.time() > deadline:
            break
        await asyncio.sleep(0.1)
    if app.process.returncode == 0:
        return f"the app exited (exit code 0) and nothing answers at {spec['ready']}"
    answer = f"answers {last_status}" if last_status is not None else "does not answer"
    return f"the app was not ready after {limits['ready_s']:g} s: {spec['ready']} {answer}"


def _exit_text(exit_code: int) -> str:
    """Return how a process ended, in words: its exit code, or the signal."""
    return f"exit code {exit_code}" if exit_code >= 0 else f"ended by {signal.Signals(-exit_code).name}"


class AppBrowser:
    """The system's Chromium, driven by Playwright, started again when it has gone."""

    def __init__(self, playwright: Any, spec: dict[str, Any]) -> None:
        self._playwright, self._spec = playwright, spec
        self._browser: Any = None

    async def new_page(self) -> Any:
        """Open a page in a new profile, so that one page of the application cannot influence the next; start Chromium
        where it does not run. Raises what Playwright raises when that fails."""
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


async def capture_page(browser: AppBrowser, spec: dict[str, Any], number: int, address: str) -> str:
    """Save a picture of one page as `page-<number>.png`, and return the notes about the page as one line; empty: none.

    Notes are about a page that does not load, crashes, answers with an error or leads elsewhere, the errors in its
    console, and why there is no picture. Its browser profile is closed in any case. Raises what Playwright raises when
    the browser does not start.
    """
    limits = spec["limits"]
    notes: list[str] = []
    errors: list[str] = []
    page = await browser.new_page()
    try:
        page.on("crash", lambda _: notes.append("the page crashed"))
        page.on("pageerror", lambda error: errors.append(str(error)) if len(errors) < limits["errors"] else None)
        page.on("console", lambda message: _record_console_error(message, errors, limits["errors"]))
        notes += await _load_page(page, address, limits)
        picture_problem = await _save_screenshot(page, spec, number, bool(notes))
        if picture_problem:
            notes.append(picture_problem)
    finally:
        with contextlib.suppress(Exception):  # whatever goes wrong with closing, the sandbox ends the browser
            await asyncio.wait_for(page.context.close(), limits["probe_s"])
    if errors:
        notes.append(
            "errors in its console: " + "; ".join(" ".join(e.split())[: limits["error_chars"]] for e in errors)
        )
    return "; ".join(dict.fromkeys(notes))


async def _load_page(page: Any, address: str, limits: dict[str, Any]) -> list[str]:
    """Load an address in a page and wait for what it fetches, and return notes about what is wrong: it does not load
    (in time), answers 400 or more, or leads to another scheme or host. Empty: nothing."""
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
    with contextlib.suppress(Error):  # a page that goes on fetching need not be waited for
        await page.wait_for_load_state("networkidle", timeout=limits["settle_s"] * 1000)
    return notes


async def _save_screenshot(page: Any, spec: dict[str, Any], number: int, has_notes: bool) -> str:
    """Save a picture of the page from its top as `page-<number>.png`: as much of the page as the limits allow.

    Return why there is no picture; empty where there is one, and for an empty page where notes say why already
    (`has_notes`). A picture of too many bytes is taken again with the window's height.
    """
    from playwright.async_api import Error

    limits = spec["limits"]
    if page.url in ("about:blank", "") or page.url.startswith("chrome-error:"):
        return "" if has_notes else "nothing is to be seen"
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
            _write_new_file(path, data)
            return ""
    return f"no picture: it has {len(data):,} bytes"


def _write_new_file(path: str, data: bytes) -> None:
    """Write the bytes into a new file of our own; whatever the application has put in its place, such as a pipe that
    nobody reads, is removed first."""
    with contextlib.suppress(OSError):
        os.unlink(path)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)


def _record_console_error(message: Any, errors: list[str], max_errors: int) -> None:
    """Append a message of a page's console to `errors`, if it is an error and there are fewer than `max_errors`.

    The address of what failed to load is added; a missing favicon is no error of the page.
    """
    address = str((message.location or {}).get("url", ""))
    if message.type != "error" or len(errors) >= max_errors or address.endswith("/favicon.ico"):
        return
    errors.append(f"{message.text} ({address})" if message.text.startswith("Failed to load") else message.text)


def _first_line(error: Exception) -> str:
    """Return the first line of Playwright's message, without its call log, at most 300 characters."""
    return str(error).strip().partition("\n")[0].removeprefix("Page.").removeprefix("goto: ")[:300]


async def main(spec: dict[str, Any]) -> None:
    """Start the application, wait until it answers, capture each page of the spec, and write the report; the
    application is killed at the end.

    Where the application does not answer, the report has only the reason and its last output; else a line for each
    page, one about an application that ended with an error meanwhile, and {"done": true} as the last one.
    """
    _raise_oom_score()
    report = ReportWriter(os.path.join(spec["results"], "said.jsonl"))
    limits = spec["limits"]
    app = await AppProcess.start(spec["start"], dict(os.environ), limits["tail"])
    try:
        if reason := await wait_until_ready(app, spec):
            report.write_line(note=reason, tail=await app.output_tail())
            return
        _prepare_imports(spec)
        from playwright.async_api import async_playwright

        async with async_playwright() as playwright:
            browser = AppBrowser(playwright, spec)
            for number, address in enumerate(spec["pages"], start=1):
                report.write_line(page=number, note=await _capture_with_timeout(browser, spec, number, address))
        exit_code = app.process.returncode
        if exit_code is not None and exit_code != 0:
            report.write_line(
                note=f"the app exited while its pages were taken ({_exit_text(exit_code)})",
                tail=await app.output_tail(),
            )
        report.write_line(done=True)
    finally:
        app.kill_group()


def _raise_oom_score() -> None:
    """Make the kernel kill this process and its children before the engine where memory is short."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


async def _capture_with_timeout(browser: AppBrowser, spec: dict[str, Any], number: int, address: str) -> str:
    """Run `capture_page` within a time limit and return its notes: a page may hang where Playwright knows no timeout.
    Any error is a note, too."""
    limits = spec["limits"]
    timeout_s = limits["launch_s"] + 3 * limits["page_s"] + limits["settle_s"]
    try:
        return await asyncio.wait_for(capture_page(browser, spec, number, address), timeout_s)
    except TimeoutError:
        return f"gave no picture in {timeout_s:g} s"
    except Exception as error:  # noqa: BLE001  # one page must not cost the others
        return f"no picture: {_first_line(error)}"


def _prepare_imports(spec: dict[str, Any]) -> None:
    """Add Playwright's packages to sys.path, and delete variables for Node and Playwright, which are the application's,
    from the environment."""
    sys.path[:0] = spec["packages"]
    for name in [n for n in os.environ if n.startswith(("PLAYWRIGHT_", "NODE_", "PW_", "DEBUG"))]:
        del os.environ[name]


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

"""Pictures of the application's pages, taken in the sandbox and written anew from nothing but their pixels. Whatever
goes wrong is a note, never a failure. Used by the activity `capture_pages`.

What a sandbox says is a picture goes to a model's API, which refuses a request with one it cannot read, and to people's
browsers. So nothing is passed on that was not understood: no metadata, nothing behind the end.
"""

from __future__ import annotations

import json
import shlex
import struct
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perdure.adapters.browser.browser import Browser, InvalidAppAddress, NoBrowser, find_browser, resolve_addresses
from perdure.adapters.sandbox.base import Sandbox, SandboxCommand, SandboxResult
from perdure.adapters.system.directories import discard
from perdure.adapters.system.files import read_regular_file
from perdure.adapters.system.output import clean_output, read_tail
from perdure.adapters.system.threads import in_thread
from perdure.models.base import PublishedModel
from perdure.models.config.repository import AppSettings
from perdure.text import one_line

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {2: 3, 6: 4}  # RGB and RGBA: all that Chromium writes
_FILTERS = 4


@dataclass(frozen=True)
class Picture:
    """A PNG file that is known to be readable. `width` and `height` in pixels."""

    data: bytes
    width: int
    height: int


def sanitize_png(data: bytes, max_width: int, max_height: int) -> Picture:
    """Check a PNG of 8 bits a channel, RGB or RGBA, not interlaced, and return it written anew, without metadata.

    Raises ValueError, which says what is wrong with it. Needs memory for the pixels only: `max_width` × `max_height` ×
    4 bytes at most. Blocks for some 30 ms.
    """
    if data[:8] != _SIGNATURE:
        raise ValueError("it is no PNG")
    header, pixels = _read_chunks(data)
    if len(header) != 13:
        raise ValueError("it has no header")
    width, height, depth, colour, compression, filter_method, interlaced = struct.unpack(">IIBBBBB", header)
    if not (0 < width <= max_width and 0 < height <= max_height):
        raise ValueError(f"it is {width} × {height} pixels large")
    if depth != 8 or colour not in _CHANNELS or compression or filter_method or interlaced:
        raise ValueError("it is of a kind that browsers do not write")
    row_bytes = 1 + width * _CHANNELS[colour]
    _check_rows(pixels, row_bytes, height)
    return Picture(
        _SIGNATURE + _make_chunk(b"IHDR", header) + _make_chunk(b"IDAT", pixels) + _make_chunk(b"IEND", b""),
        width,
        height,
    )


def _read_chunks(data: bytes) -> tuple[bytes, bytes]:
    """Return the bytes of a PNG's header and those of its compressed pixels; all other chunks are dropped. Raises
    ValueError for a wrong checksum, or without an end."""
    header, offset = b"", len(_SIGNATURE)
    pixels: list[bytes] = []
    while offset + 12 <= len(data):
        (length,) = struct.unpack(">I", data[offset : offset + 4])
        kind, body = data[offset + 4 : offset + 8], data[offset + 8 : offset + 8 + length]
        checksum = data[offset + 8 + length : offset + 12 + length]
        if len(checksum) != 4 or zlib.crc32(kind + body) != int.from_bytes(checksum):
            raise ValueError("it is damaged")
        if kind == b"IEND":
            return header, b"".join(pixels)
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            pixels.append(body)
        offset += 12 + length
    raise ValueError("it is cut off")


def _check_rows(pixels: bytes, row_bytes: int, height: int) -> None:
    """Raise ValueError unless the pixels unpack to exactly `height` rows of `row_bytes` bytes, each with a filter that
    PNG knows."""
    decompressor = zlib.decompressobj()
    try:
        rows = decompressor.decompress(pixels, row_bytes * height + 1)
    except zlib.error:
        raise ValueError("its pixels cannot be unpacked") from None
    if len(rows) != row_bytes * height or not decompressor.eof or decompressor.unused_data:
        raise ValueError("it has not as many pixels as it says")
    if max(rows[::row_bytes]) > _FILTERS:
        raise ValueError("its rows cannot be read")


def _make_chunk(kind: bytes, body: bytes) -> bytes:
    """Return a chunk of a PNG, with its length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


APP_S = 240.0
"""Seconds to start an application and capture its pages: a page that is not captured by then is left out, and the
delivery goes on."""

APP_READY_S = 90.0
APP_PROBE_S = 3.0
"""Seconds for an application to answer at `[app] ready`, which may build first; and for one of its answers."""

APP_AT_ONCE_S = 5.0
APP_DETACHED_S = 5.0
"""Seconds within which an application that ends counts as not started at all; and seconds for a server that it left
behind to answer."""

APP_TAIL_CHARS = 1_500
"""Characters of what an application wrote before it ended: a traceback's last lines, which say why."""

APP_PAGES_MOST = 10
APP_PAGE_S = 15.0
APP_SETTLE_S = 2.0
"""The most pages that are captured; seconds for one to load, and for what it fetches after that: ten slow pages fit
into APP_S."""

BROWSER_START_S = 30.0
"""Seconds for Chromium to start: it does in 0.5 s; on a busy host with a cold disk it was seen to take 8 s."""

BROWSER_HEAP_MB = 512
"""The heap of JavaScript in one page, in MB: a page that allocates without an end is its own failure, not the
host's."""

PAGE_ERRORS = 3
PAGE_ERROR_CHARS = 200
PAGE_NOTE_CHARS = 800
"""Errors of a page's console that are shown, the length of one in characters, and of the whole note about a page."""

PICTURE_WIDTH, PICTURE_VIEWPORT, PICTURE_HEIGHT = 1280, 800, 2000
"""Width, height of the window and greatest height of a picture, in pixels: a desk's window, and a long page down to
2000, the most that the model's API takes where there are many images."""

PICTURE_BYTES = 3_500_000
"""The most bytes of one PNG: base64 makes 4.7 MB of it, and the model's API takes 5. A page of text has 100 KB."""


DRIVER_PATH = Path(__file__).with_name("driver.py")

CHROMIUM_ARGUMENTS = (
    "--disable-gpu",
    "--no-proxy-server",
    "--disable-breakpad",
    "--force-color-profile=srgb",
    f"--js-flags=--max-old-space-size={BROWSER_HEAP_MB}",
)

_REPORT_BYTES = 512 * 1024


@dataclass(frozen=True)
class CaptureTimeouts:
    """The time limits of a capture, in seconds.

    whole_s     for everything
    ready_s     for the application to answer; probe_s: for one of its answers
    at_once_s   within which its end counts as "at once"; detached_s: for a server that it left behind to answer
    launch_s    for the browser to start
    page_s      for a page to load; settle_s: for what it fetches after that
    """

    whole_s: float = APP_S
    ready_s: float = APP_READY_S
    probe_s: float = APP_PROBE_S
    at_once_s: float = APP_AT_ONCE_S
    detached_s: float = APP_DETACHED_S
    launch_s: float = BROWSER_START_S
    page_s: float = APP_PAGE_S
    settle_s: float = APP_SETTLE_S


@dataclass(frozen=True)
class CapturedPage:
    """A page of `[app] pages`, as the setting has it, and its picture. Without one `note` says why."""

    page: str
    picture: Picture | None = None
    note: str = ""


@dataclass(frozen=True)
class Capture:
    """The captured pages, in the order of `[app] pages`.

    note  about all of them: its first line says why there is no picture at all, further lines are what the application
    wrote last
    """

    pages: tuple[CapturedPage, ...] = ()
    note: str = ""

    @property
    def picture_count(self) -> int:
        """Return how many pages have a picture."""
        return sum(page.picture is not None for page in self.pages)

    @property
    def summary(self) -> str:
        """Return `2 pages`, `1 of 2 pages`, or `no pictures: the app exited at once (exit code 1)`."""
        count = self.picture_count
        word = "page" if len(self.pages) == 1 else "pages"
        if count:
            return f"{count} {word}" if count == len(self.pages) else f"{count} of {len(self.pages)} {word}"
        first = next((page.note for page in self.pages if page.note), "there are none")
        return "no pictures: " + (self.note.partition("\n")[0] or first)


class _DriverLine(PublishedModel):
    """A line of the driver's report. The application could have written it itself, so it is not trusted.

    page  the number of a page, from 1, that `note` is about; 0: it is about all of them
    tail  what the application wrote last
    done  whether all pages have been visited
    """

    page: int = 0
    note: str = ""
    tail: str = ""
    done: bool = False


@dataclass(frozen=True)
class _DriverReport:
    """The driver's report: a note by number of a page, one about all of them, and whether it came to its end."""

    page_notes: Mapping[int, str]
    note: str
    done: bool


async def capture_app(
    sandbox: Sandbox,
    command: SandboxCommand,
    settings: AppSettings,
    logs: Path,
    *,
    browser: Browser | None = None,
    timeouts: CaptureTimeouts = CaptureTimeouts(),
) -> Capture:
    """Run `[app] start` in the sandbox and return pictures of `[app] pages`, at most APP_PAGES_MOST of them.

    command  the sandbox's view of the tree; its `script` and `output` are replaced
    logs     directory for the output (`app.log`) and, while this runs, the pictures
    browser  None: this host's own

    What goes wrong with an address, the application or the browser is a note in the result, as is that there are more
    pages. What the application started is dead on return. Raises Superseded when another attempt owns the workspace.
    """
    try:
        ready, pages, invalid_pages = resolve_addresses(settings, command.env)
        host_browser: Browser = await in_thread(find_browser) if browser is None else browser
    except (InvalidAppAddress, NoBrowser) as error:
        return Capture(note=str(error))
    if not pages:
        return Capture(tuple(CapturedPage(page, note=reason) for page, reason in invalid_pages.items()))
    page_addresses = dict(list(pages.items())[:APP_PAGES_MOST])
    results = await in_thread(_make_results_dir, logs)
    try:
        spec = _driver_spec(settings, ready, list(page_addresses.values()), host_browser, results, timeouts)
        driver_command = replace(
            command,
            script=shlex.join(["exec", host_browser.python, "-I", "-S", str(DRIVER_PATH), json.dumps(spec)]),
            output=logs / "app.log",
            timeout_s=timeouts.whole_s,
            results=results,
            visible_paths=(*host_browser.visible_paths, DRIVER_PATH),
        )
        sandbox_result = await sandbox.run_command(driver_command)
        captured = await in_thread(
            _collect_results, list(page_addresses), results, sandbox_result, driver_command.output
        )
    finally:
        await in_thread(discard, results)
    if captured.pages:
        captured = replace(
            captured,
            pages=(*captured.pages, *(CapturedPage(page, note=reason) for page, reason in invalid_pages.items())),
        )
    if len(page_addresses) < len(pages):
        limit_note = f"only the first {len(page_addresses)} of {len(pages)} pages were taken"
        captured = replace(captured, note="\n".join(part for part in (captured.note, limit_note) if part))
    return captured


def _driver_spec(
    settings: AppSettings, ready: str, pages: list[str], browser: Browser, results: Path, timeouts: CaptureTimeouts
) -> dict[str, Any]:
    """Return what driver.py is told in its argument, as JSON: what to start and open, the browser, where to write, and
    the limits."""
    return {
        "start": settings.start,
        "ready": ready,
        "pages": pages,
        "results": str(results),
        "chromium": browser.chromium,
        "packages": browser.package_dirs,
        "arguments": CHROMIUM_ARGUMENTS,
        "limits": {
            **asdict(timeouts),
            "tail": APP_TAIL_CHARS,
            "width": PICTURE_WIDTH,
            "viewport": PICTURE_VIEWPORT,
            "height": PICTURE_HEIGHT,
            "bytes": PICTURE_BYTES,
            "errors": PAGE_ERRORS,
            "error_chars": PAGE_ERROR_CHARS,
        },
    }


def _make_results_dir(logs: Path) -> Path:
    """Make a new, empty directory for the driver's results below `logs`, and remove those of earlier captures."""
    logs.mkdir(parents=True, exist_ok=True)
    for old_dir in logs.glob("pages-*"):
        discard(old_dir)
    return Path(tempfile.mkdtemp(prefix="pages-", dir=logs))


def _collect_results(pages_setting: list[str], results: Path, sandbox_result: SandboxResult, output: Path) -> Capture:
    """Read the driver's report and pictures, and return them as a Capture.

    A page without a picture and a note of its own gets the reason that holds for all; where that is all there is, the
    capture has no pages, only the note.
    """
    report = _read_report(results / "said.jsonl")
    note = report.note or ("" if report.done else _early_end_reason(sandbox_result, output))
    missing_reason = note.partition("\n")[0] or "it was not taken"
    pages = []
    for number, name in enumerate(pages_setting, start=1):
        picture, picture_problem = _read_picture(results / f"page-{number}.png")
        page_note = "; ".join(part for part in (report.page_notes.get(number, ""), picture_problem) if part)
        pages.append(CapturedPage(name, picture, page_note or ("" if picture else missing_reason)))
    if not any(page.picture or page.note != missing_reason for page in pages):
        return Capture(note=note)
    return Capture(tuple(pages), note)


def _early_end_reason(sandbox_result: SandboxResult, output: Path) -> str:
    """Return the reason why the driver did not come to its end: the sandbox, the time, or its exit code with the last
    line of output."""
    if sandbox_result.failure:
        return f"the sandbox could not run it: {one_line(sandbox_result.failure, PAGE_NOTE_CHARS)}"
    if sandbox_result.timed_out:
        return "no time was left for it"
    last_line = one_line(read_tail(output, APP_TAIL_CHARS).rstrip().rpartition("\n")[2], PAGE_ERROR_CHARS)
    return f"the browser's driver ended (exit code {sandbox_result.exit_code})" + (
        f": {last_line}" if last_line else ""
    )


def _read_report(path: Path) -> _DriverReport:
    """Read the driver's lines from its report, at most _REPORT_BYTES of it; what is no line of the driver is skipped.

    Notes are cut to PAGE_NOTE_CHARS; an application's last output is added to the note about all pages.
    """
    pages, note, done = {}, "", False
    for text in (read_regular_file(path, _REPORT_BYTES) or b"").splitlines():
        try:
            line = _DriverLine.model_validate_json(text)
        except ValidationError:
            continue
        line_note = one_line(line.note, PAGE_NOTE_CHARS)
        if line.page:
            pages[line.page] = line_note
        elif line_note:
            app_tail = clean_output(line.tail)[-APP_TAIL_CHARS:].strip()
            note = f"{line_note}\n{app_tail}" if app_tail else line_note
        done = done or line.done
    return _DriverReport(pages, note, done)


def _read_picture(path: Path) -> tuple[Picture | None, str]:
    """Read a picture that the driver wrote, and return it with an empty text, or None with the reason why it is not
    used.

    None with an empty text: there is no file.
    """
    data = read_regular_file(path, PICTURE_BYTES)
    if data is None:
        return None, ""
    if len(data) > PICTURE_BYTES:
        return None, "its picture is not used: it is too large"
    try:
        return sanitize_png(data, PICTURE_WIDTH, PICTURE_HEIGHT), ""
    except ValueError as error:
        return None, f"its picture is not used: {error}"

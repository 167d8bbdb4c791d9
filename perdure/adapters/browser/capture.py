"""Start the application in the sandbox and take its pages. Whatever goes wrong is a note, never a failure."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perdure.adapters.browser.browser import Browser, NoBrowser, NotAnAddress, addresses, find_browser
from perdure.adapters.browser.png import Picture, checked
from perdure.adapters.sandbox.base import Command, Finished, Sandbox
from perdure.adapters.sandbox.output import clean
from perdure.adapters.system.files import read_regular_file
from perdure.adapters.system.output import read_tail
from perdure.adapters.system.removal import discard
from perdure.adapters.system.threads import in_thread
from perdure.models.base import PublishedModel
from perdure.models.config import AppSettings
from perdure.text import one_line

APP_S = 240.0
"""To start an application and take its pages: what has not been taken by then is not, and the delivery goes on."""

APP_READY_S = 90.0
APP_PROBE_S = 3.0
"""For an application to answer at `[app] ready`, which may build first; and for one answer of it."""

APP_AT_ONCE_S = 5.0
APP_DETACHED_S = 5.0
"""Ended so soon, it did not start at all; and how long a server that it left behind has to answer."""

APP_TAIL_CHARS = 1_500
"""Of what an application wrote before it ended: a traceback's last lines, which say why."""

APP_PAGES_MOST = 10
APP_PAGE_S = 15.0
APP_SETTLE_S = 2.0
"""Pages taken; seconds for one to load, and for what it fetches after that: ten slow pages fit into APP_S."""

BROWSER_START_S = 30.0
"""Chromium starts in 0.5 s; on a busy host with a cold disk it was seen to take 8 s."""

BROWSER_HEAP_MB = 512
"""Of JavaScript in one page: a page that allocates without an end is its own failure, not the host's."""

PAGE_ERRORS = 3
PAGE_ERROR_CHARS = 200
PAGE_NOTE_CHARS = 800
"""Errors of a page's console that are told, the length of one, and of all that is said about a page."""

PICTURE_WIDTH, PICTURE_VIEWPORT, PICTURE_HEIGHT = 1280, 800, 2000
"""Pixels: a desk's window, and a long page down to 2000, the most the model's API takes where there are many images."""

PICTURE_BYTES = 3_500_000
"""Of one PNG: base64 makes 4.7 MB of it, and the model's API takes 5. A page of text has 100 KB."""


DRIVER = Path(__file__).with_name("driver.py")

ARGUMENTS = (
    "--disable-gpu",
    "--no-proxy-server",
    "--disable-breakpad",
    "--force-color-profile=srgb",
    f"--js-flags=--max-old-space-size={BROWSER_HEAP_MB}",
)

_SAID_BYTES = 512 * 1024


@dataclass(frozen=True)
class Patience:
    """Seconds: for everything; for the app to answer, one answer of it, its end to count as "at once", and a server
    that it left behind; for the browser's start; for a page to load and to settle."""

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
    """`picture` None: there is none, and `note` says why."""

    page: str
    picture: Picture | None = None
    note: str = ""


@dataclass(frozen=True)
class Capture:
    """The pages in the order of `[app] pages`. `note`: what is to be said about all of them, its first line why there
    is no picture at all, further lines what the application wrote last."""

    pages: tuple[CapturedPage, ...] = ()
    note: str = ""

    @property
    def taken(self) -> int:
        return sum(page.picture is not None for page in self.pages)

    @property
    def summary(self) -> str:
        """`2 pages`, `1 of 2 pages`, `no pictures: the app exited at once (exit code 1)`."""
        taken = self.taken
        word = "page" if len(self.pages) == 1 else "pages"
        if taken:
            return f"{taken} {word}" if taken == len(self.pages) else f"{taken} of {len(self.pages)} {word}"
        first = next((page.note for page in self.pages if page.note), "there are none")
        return "no pictures: " + (self.note.partition("\n")[0] or first)


class _Line(PublishedModel):
    """A line of the driver, which the application could have written itself."""

    page: int = 0
    note: str = ""
    tail: str = ""
    done: bool = False


@dataclass(frozen=True)
class _Heard:
    pages: Mapping[int, str]
    note: str
    done: bool


async def capture(
    sandbox: Sandbox,
    command: Command,
    settings: AppSettings,
    logs: Path,
    *,
    browser: Browser | None = None,
    patience: Patience = Patience(),
) -> Capture:
    """Run `[app] start` and take `[app] pages` of what `command` shows (its `script` and `output` do not count).

    logs     takes the output and, for as long as this runs, the pictures
    browser  None: this host's own

    What the application started is dead on return. Raises Superseded when somebody else owns the workspace.
    """
    try:
        ready, pages, refused = addresses(settings, command.env)
        tools: Browser = await in_thread(find_browser) if browser is None else browser
    except (NotAnAddress, NoBrowser) as no:
        return Capture(note=str(no))
    if not pages:
        return Capture(tuple(CapturedPage(page, note=why) for page, why in refused.items()))
    shown = dict(list(pages.items())[:APP_PAGES_MOST])
    results = await in_thread(_fresh, logs)
    try:
        spec = _spec(settings, ready, list(shown.values()), tools, results, patience)
        wanted = replace(
            command,
            script=shlex.join(["exec", tools.python, "-I", "-S", str(DRIVER), json.dumps(spec)]),
            output=logs / "app.log",
            timeout_s=patience.whole_s,
            results=results,
            shown=(*tools.shown, DRIVER),
        )
        finished = await sandbox.run(wanted)
        found = await in_thread(_found, list(shown), results, finished, wanted.output)
    finally:
        await in_thread(discard, results)
    if found.pages:
        found = replace(found, pages=(*found.pages, *(CapturedPage(page, note=why) for page, why in refused.items())))
    if len(shown) < len(pages):
        more = f"only the first {len(shown)} of {len(pages)} pages were taken"
        found = replace(found, note="\n".join(part for part in (found.note, more) if part))
    return found


def _spec(
    settings: AppSettings, ready: str, pages: list[str], browser: Browser, results: Path, patience: Patience
) -> dict[str, Any]:
    return {
        "start": settings.start,
        "ready": ready,
        "pages": pages,
        "results": str(results),
        "chromium": browser.chromium,
        "packages": browser.packages,
        "arguments": ARGUMENTS,
        "limits": {
            **asdict(patience),
            "tail": APP_TAIL_CHARS,
            "width": PICTURE_WIDTH,
            "viewport": PICTURE_VIEWPORT,
            "height": PICTURE_HEIGHT,
            "bytes": PICTURE_BYTES,
            "errors": PAGE_ERRORS,
            "error_chars": PAGE_ERROR_CHARS,
        },
    }


def _fresh(logs: Path) -> Path:
    """A directory nobody has written to."""
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.glob("pages-*"):
        discard(old)
    return Path(tempfile.mkdtemp(prefix="pages-", dir=logs))


def _found(names: list[str], results: Path, finished: Finished, output: Path) -> Capture:
    heard = _heard(results / "said.jsonl")
    note = heard.note or ("" if heard.done else _broken_off(finished, output))
    missing = note.partition("\n")[0] or "it was not taken"
    pages = []
    for number, name in enumerate(names, start=1):
        picture, why = _picture(results / f"page-{number}.png")
        said = "; ".join(part for part in (heard.pages.get(number, ""), why) if part)
        pages.append(CapturedPage(name, picture, said or ("" if picture else missing)))
    if not any(page.picture or page.note != missing for page in pages):
        return Capture(note=note)
    return Capture(tuple(pages), note)


def _broken_off(finished: Finished, output: Path) -> str:
    if finished.failure:
        return f"the sandbox could not run it: {one_line(finished.failure, PAGE_NOTE_CHARS)}"
    if finished.timed_out:
        return "no time was left for it"
    last = one_line(read_tail(output, APP_TAIL_CHARS).rstrip().rpartition("\n")[2], PAGE_ERROR_CHARS)
    return f"the browser's driver ended (exit code {finished.exit_code})" + (f": {last}" if last else "")


def _heard(path: Path) -> _Heard:
    pages, note, done = {}, "", False
    for text in (read_regular_file(path, _SAID_BYTES) or b"").splitlines():
        try:
            said = _Line.model_validate_json(text)
        except ValidationError:
            continue
        words = one_line(said.note, PAGE_NOTE_CHARS)
        if said.page:
            pages[said.page] = words
        elif words:
            last = clean(said.tail)[-APP_TAIL_CHARS:].strip()
            note = f"{words}\n{last}" if last else words
        done = done or said.done
    return _Heard(pages, note, done)


def _picture(path: Path) -> tuple[Picture | None, str]:
    """(the picture, why it is none): neither when there is no file."""
    data = read_regular_file(path, PICTURE_BYTES)
    if data is None:
        return None, ""
    if len(data) > PICTURE_BYTES:
        return None, "its picture is not used: it is too large"
    try:
        return checked(data, PICTURE_WIDTH, PICTURE_HEIGHT), ""
    except ValueError as problem:
        return None, f"its picture is not used: {problem}"

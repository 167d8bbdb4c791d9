"""Pages of applications, taken by a real browser: what goes wrong is said, and what means no good is not believed."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from app_fixtures import Bench, by_name, one_pixel, quick

from perdure.adapters.browser.browser import NoBrowser, find_browser
from perdure.adapters.browser.capture import (
    APP_PAGES_MOST,
    APP_TAIL_CHARS,
    PICTURE_HEIGHT,
    PICTURE_VIEWPORT,
    PICTURE_WIDTH,
    sanitize_png,
)
from tests.waiting import patient

PAGES = """
def page(path):
    if path == "/":
        return html("<h1>Hello</h1>")
    if path == "/noisy":
        return html("<h1>x</h1><script>console.error('first bad thing');throw new Error('second bad thing')</script>")
    if path == "/broken":
        return html("<h1>oh no</h1>", 500)
    if path == "/slow":
        time.sleep(60)
    if path == "/elsewhere":
        return html("", 302, Location="http://192.0.2.1/")
    if path == "/file":
        return html("", 302, Location="file:///etc/passwd")
    if path == "/frame":
        return html("<iframe src='file:///etc/passwd'></iframe>")
    if path == "/spin":
        return html("<h1>x</h1><script>setTimeout(() => { while (true) {} }, 0)</script>")
    if path == "/long":
        return html("<div style='height: 90000px; background: linear-gradient(red, blue)'></div>")
    if path == "/download":
        return 200, {"Content-Type": "application/zip", "Content-Disposition": "attachment"}, "PK"
    if path == "/greedy":
        return html("<script>const a = []; while (true) a.push(new Array(1e6).fill(Math.random()))</script>")
    return html("nothing here", 404)
"""

NODE = """
require('node:http').createServer((request, response) => {
  response.setHeader('content-type', 'text/html');
  response.end('<h1>from node ' + process.version + '</h1>');
}).listen(process.env.FRONTEND_PORT, '127.0.0.1');
"""


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_every_page_gets_its_picture_or_a_note_that_says_why_not(bench: Bench) -> None:
    """Of an app that goes into the background, which is waited for."""
    behind = "(sleep 1; exec python3 app.py) >/dev/null 2>&1 &"
    names = ["/", "/noisy", "/broken", "/nowhere", "/elsewhere", "/file", "/frame", "/long", "/download"]
    shown = await bench.of_python(PAGES, *names, "https://example.org/", start=behind, timeouts=quick())
    pages = by_name(shown)
    assert list(pages) == [*names, "https://example.org/"]
    notes = {name: page.note for name, page in pages.items()}
    assert notes["/"] == ""
    assert notes["/noisy"] == "errors in its console: first bad thing; second bad thing"
    assert notes["/broken"].startswith("answers 500")
    assert notes["/nowhere"].startswith("answers 404")
    assert notes["/elsewhere"].startswith("does not load: net::ERR_")
    assert notes["/file"].startswith("does not load: net::ERR_UNSAFE_REDIRECT")
    assert "Not allowed to load local resource: file:///etc/passwd" in notes["/frame"]
    assert notes["/download"].startswith("does not load: ")
    assert notes["https://example.org/"] == "[app] pages is no address on 127.0.0.1: https://example.org/"
    taken = [name for name, page in pages.items() if page.picture is not None]
    assert taken == ["/", "/noisy", "/broken", "/nowhere", "/frame", "/long"]
    assert shown.summary == "6 of 10 pages"
    sizes = {name: (page.picture.width, page.picture.height) for name, page in pages.items() if page.picture}
    assert sizes["/"] == (PICTURE_WIDTH, PICTURE_VIEWPORT)
    assert sizes["/long"] == (PICTURE_WIDTH, PICTURE_HEIGHT)
    assert shown.note == ""
    picture = pages["/"].picture
    assert picture is not None
    assert sanitize_png(picture.data, PICTURE_WIDTH, PICTURE_HEIGHT) == picture, "it holds more than its pixels"
    assert not list(bench.logs.glob("pages-*")), "pictures are left behind outside of the vault"


@pytest.mark.story
@pytest.mark.timeout(120)
@pytest.mark.slow
async def test_pages_that_hang_spin_or_eat_memory_cost_their_own_picture_only(bench: Bench) -> None:
    shown = await bench.of_python(PAGES, "/slow", "/spin", "/greedy", "/", timeouts=quick(page_s=5.0))
    pages = by_name(shown)
    assert "did not finish loading in 5 s" in pages["/slow"].note
    assert pages["/slow"].picture is None
    for name in ("/spin", "/greedy"):
        assert pages[name].note, f"{name} is not told about"
    assert pages["/"].picture is not None


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_an_app_in_node_is_taken_at_a_port_and_an_address_of_its_own_however_much_it_says(bench: Bench) -> None:
    """A flood of output fills neither memory nor disk."""
    (bench.tree / "server.js").write_text(NODE)
    me = psutil.Process()
    before = me.memory_info().rss
    start, ready = (
        "(timeout 2 yes 'a line of the flood' &) ; exec node server.js",
        "http://localhost:$FRONTEND_PORT/ready",
    )
    shown = await bench.take("here", "http://127.0.0.1:${FRONTEND_PORT}/", start=start, ready=ready)
    assert [page.note for page in shown.pages] == ["", ""]
    assert shown.summary == "2 pages"
    assert me.memory_info().rss - before < 100_000_000
    assert (bench.logs / "app.log").stat().st_size < 10_000
    shown = await bench.take("/", start="timeout 1 yes 'a line of the flood'; exit 7", timeouts=quick())
    assert shown.note.startswith("the app exited at once (exit code 7)\n")
    assert len(shown.note) < APP_TAIL_CHARS + 100


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_an_app_that_exits_at_once_is_told_with_its_exit_code_and_last_words(bench: Bench) -> None:
    shown = await bench.take("/", start="echo starting; echo 'cannot find module x' >&2; exit 3", timeouts=quick())
    assert shown.summary == "no pictures: the app exited at once (exit code 3)"
    assert shown.note.splitlines()[1:] == ["starting", "cannot find module x"]
    assert shown.pages == ()
    gone = await bench.take("/", start="kill -9 $$", timeouts=quick())
    assert gone.summary == "no pictures: the app exited at once (ended by SIGKILL)"


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_an_app_that_is_just_over_is_not_waited_for(bench: Bench) -> None:
    over = await bench.take("/", start="true", timeouts=quick(detached_s=0.5))
    assert over.note == "the app exited (exit code 0) and nothing answers at http://127.0.0.1:9200/"


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_an_app_that_never_answers_is_given_up_with_what_it_said(bench: Bench) -> None:
    shown = await bench.take("/", start="echo compiling; sleep 600", timeouts=quick(ready_s=3.0))
    assert shown.note == "the app was not ready after 3 s: http://127.0.0.1:9200/ does not answer\ncompiling"
    busy = "def page(path):\n    return html('starting', 503)"
    shown = await bench.of_python(busy, "/", timeouts=quick(ready_s=6.0))
    assert shown.note == "the app was not ready after 6 s: http://127.0.0.1:9200/ answers 503"


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_nothing_goes_on_after_the_time_is_over(bench: Bench) -> None:
    marker = f"86{int(time.monotonic() * 1000) % 10**7}"
    shown = await bench.take("/", start=f"(setsid sleep {marker} &); sleep 600", timeouts=quick(whole_s=3.0))
    assert shown.summary == "no pictures: no time was left for it"
    assert not [p for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or [])]


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_what_was_taken_before_an_end_by_force_stays(bench: Bench) -> None:
    killer = "def page(path):\n    if path == '/kill':\n        os.kill(os.getppid(), 9)\n    return html('x')"
    shown = await bench.of_python(killer, "/", "/kill", timeouts=quick())
    pages = by_name(shown)
    assert pages["/"].picture is not None
    assert pages["/kill"].note == shown.note == "the browser's driver ended (exit code 137)"
    assert shown.summary == "1 of 2 pages"


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_cancelling_ends_app_and_browser(bench: Bench) -> None:
    marker = f"87{int(time.monotonic() * 1000) % 10**7}"
    taking = asyncio.ensure_future(bench.take("/", start=f"sleep {marker}"))

    def running() -> list[psutil.Process]:
        return [p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or []) == ["sleep", marker]]

    async with asyncio.timeout(patient(30)):
        while not running():
            await asyncio.sleep(0.05)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert not running()


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_without_playwright_or_chromium_a_note_says_what_to_install_and_only_so_many_pages_are_listed(
    bench: Bench,
) -> None:
    with pytest.raises(NoBrowser, match="pip install 'perdure\\[screenshots\\]'"):
        find_browser(packages=("playwright", "no_such_package_at_all"))
    with pytest.raises(NoBrowser, match="no Chromium on PATH"):
        find_browser(search_path="")
    broken = replace(find_browser(), chromium="/usr/bin/false")
    many = [f"/{n}" for n in range(APP_PAGES_MOST + 2)]
    shown = await bench.of_python(PAGES, *many, browser=broken)
    assert [page.page for page in shown.pages] == many[:APP_PAGES_MOST]
    assert shown.note.endswith(f"only the first {APP_PAGES_MOST} of {APP_PAGES_MOST + 2} pages were taken")
    assert shown.pages[0].note.startswith("no picture: ")
    alone = await bench.of_python(PAGES, "/", browser=broken)
    assert alone.summary.startswith("no pictures: no picture: ")
    assert (await bench.take("/", ready="http://127.0.0.1:$NOT_SET/")).summary == (
        "no pictures: [app] ready names $NOT_SET, which is not set: http://127.0.0.1:$NOT_SET/"
    )


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_a_sandbox_that_cannot_start_is_a_note_too(bench: Bench, tmp_path: Path) -> None:
    tools = replace(find_browser(), visible_paths=(tmp_path / "is not there",))
    shown = await bench.of_python(PAGES, "/", browser=tools)
    assert shown.summary.startswith("no pictures: the sandbox could not run it: ")


SPY = """
import json, socket, subprocess

def reached(host, port):
    try:
        socket.create_connection((host, port), 2).close()
        return True
    except OSError:
        return False

found = {
    "neighbour": reached("127.0.0.1", %(port)d),
    "outside": reached("192.0.2.1", 80) or reached("1.1.1.1", 443),
    "files": [path for path in %(paths)r if os.path.exists(path)],
    "shadow": os.path.exists("/etc/shadow"),
    "sys": os.path.exists("/sys/class"),
    "told": sorted(name for name in os.environ if "SECRET" in name or "KEY" in name),
    "root": os.path.exists("/root/.ssh") or os.path.exists("/root/.bashrc"),
}

def page(path):
    words = json.dumps(json.dumps(found))
    script = "console.error(%%s); fetch('http://127.0.0.1:%(port)d/').catch(e => console.error('fetch: ' + e))" %% words
    return html("<script>" + script + "</script>")
"""

FORGER = """
import json, pathlib

def results():
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split(chr(0))
        except OSError:
            continue
        for word in words:
            if word.startswith("{") and "results" in word:
                return pathlib.Path(json.loads(word)["results"])

there = results()

def page(path):
    return html("<h1>x</h1>")

def forge():
    time.sleep(float(%(wait)r))
    %(forgery)s

import threading
threading.Thread(target=forge, daemon=True).start()
time.sleep(%(before)r)
"""


@pytest.fixture
def neighbour() -> Iterator[int]:
    """The port of another delivery's application, listening on this host."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.timeout(120)
@pytest.mark.story
async def test_it_reaches_nobody_and_sees_nothing_of_the_host(
    bench: Bench, neighbour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET_KEY", "s3cret")
    (bench.root / "home").mkdir(exist_ok=True)
    (bench.root / "home" / "worker.log").write_text("private")
    tools = find_browser()
    beside = [str(Path(tools.package_dirs[0]) / name) for name in ("anthropic", "temporalio", "perdure")]
    paths = [str(bench.root / "home" / "worker.log"), *beside]
    assert Path(beside[0]).exists()
    spy = SPY % {"port": neighbour, "paths": paths}
    shown = await bench.of_python(spy, "/", f"http://127.0.0.1:{neighbour}/", timeouts=quick())
    pages = by_name(shown)
    words = pages["/"].note.removeprefix("errors in its console: ")
    found, end = json.JSONDecoder().raw_decode(words)
    nothing = {
        "neighbour": False,
        "outside": False,
        "files": [],
        "shadow": False,
        "sys": False,
        "told": [],
        "root": False,
    }
    assert found == nothing
    assert "fetch: TypeError: Failed to fetch" in words[end:]
    assert pages[f"http://127.0.0.1:{neighbour}/"].note.startswith("does not load: net::ERR_CONNECTION_REFUSED")


@pytest.mark.timeout(120)
@pytest.mark.story
@pytest.mark.parametrize(
    ("forgery", "note"),
    [
        ("(there / 'page-1.png').write_bytes(b'no picture'); os._exit(0)", "its picture is not used: it is no PNG"),
        (
            "(there / 'page-1.png').write_bytes(bytes(9_000_000)); os._exit(0)",
            "its picture is not used: it is too large",
        ),
        ("(there / 'page-1.png').symlink_to(%(target)r); os._exit(0)", "the app exited"),
        ("os.mkfifo(there / 'page-1.png'); os._exit(0)", "the app exited"),
    ],
    ids=["not a picture", "too large", "a link to a picture of the host", "a pipe"],
)
async def test_what_it_puts_in_the_pictures_place_is_not_believed(bench: Bench, forgery: str, note: str) -> None:
    """It ends before it is ready, so that nothing of the browser's takes the place of what it left there."""
    target = bench.root / "private.png"
    target.write_bytes(one_pixel())
    values = {"forgery": forgery.replace("%(target)r", repr(str(target))), "wait": 0, "before": 30}
    shown = await bench.of_python(FORGER % values, "/", timeouts=quick(detached_s=0.2))
    assert not [page for page in shown.pages if page.picture]
    assert note in (shown.pages[0].note if shown.pages else shown.note)


@pytest.mark.timeout(120)
@pytest.mark.story
async def test_files_in_the_way_and_forged_lines_cost_nothing_but_what_they_say(bench: Bench) -> None:
    lines = "b'not json' + bytes([10]) + json.dumps({'page': 2, 'note': 'x' * 9999}).encode() + bytes([10])"
    forgery = f"os.mkfifo(there / 'page-1.png'); open(there / 'said.jsonl', 'ab').write({lines})"
    shown = await bench.of_python(FORGER % {"forgery": forgery, "wait": 0, "before": 0.5}, "/", "/2", timeouts=quick())
    assert [page.picture is not None for page in shown.pages] == [True, True]
    assert all(len(page.note) < 1000 for page in shown.pages)


@pytest.mark.timeout(120)
@pytest.mark.story
async def test_ending_the_browsers_driver_is_a_note(bench: Bench) -> None:
    shown = await bench.of_python(FORGER % {"forgery": "os.kill(os.getppid(), 9)", "wait": 0.5, "before": 30}, "/")
    assert shown.summary == "no pictures: the browser's driver ended (exit code 137)"

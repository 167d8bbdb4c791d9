"""An application that means no good: it sees nothing of the host, reaches nobody, and its pictures are not believed."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_fixtures import Bench, by_name, one_pixel, quick

from perdure.adapters.browser.browser import find_browser

pytestmark = [pytest.mark.timeout(120), pytest.mark.story]

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


async def test_files_in_the_way_and_forged_lines_cost_nothing_but_what_they_say(bench: Bench) -> None:
    lines = "b'not json' + bytes([10]) + json.dumps({'page': 2, 'note': 'x' * 9999}).encode() + bytes([10])"
    forgery = f"os.mkfifo(there / 'page-1.png'); open(there / 'said.jsonl', 'ab').write({lines})"
    shown = await bench.of_python(FORGER % {"forgery": forgery, "wait": 0, "before": 0.5}, "/", "/2", timeouts=quick())
    assert [page.picture is not None for page in shown.pages] == [True, True]
    assert all(len(page.note) < 1000 for page in shown.pages)


async def test_ending_the_browsers_driver_is_a_note(bench: Bench) -> None:
    shown = await bench.of_python(FORGER % {"forgery": "os.kill(os.getppid(), 9)", "wait": 0.5, "before": 30}, "/")
    assert shown.summary == "no pictures: the browser's driver ended (exit code 137)"

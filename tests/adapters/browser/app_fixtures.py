"""An application on disk, and its pages taken in the real sandbox with the real browser."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

from perdure.adapters.browser.capture import Capture, CapturedPage, CaptureTimeouts, capture_app
from perdure.adapters.sandbox.base import Sandbox, SandboxCommand
from perdure.models.config.repository import AppSettings

PORT = "9200"
"""In a network namespace of its own: no other test's, whatever is listening here."""

SERVER = """\
import http.server, os, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.partition("?")[0]
        status, headers, body = page(path)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        pass

def html(body, status=200, **headers):
    return status, {"Content-Type": "text/html; charset=utf-8", **headers}, "<!doctype html><title>app</title>" + body

%s

http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["FRONTEND_PORT"])), Handler).serve_forever()
"""
"""A server in Python's own library; the function `page(path)` is to be filled in."""


class Bench:
    def __init__(self, sandbox: Sandbox, root: Path) -> None:
        self.sandbox, self.root = sandbox, root
        self.tree = root / "tree"
        self.tree.mkdir(exist_ok=True)
        self.logs = root / "logs"

    async def take(
        self,
        *pages: str,
        start: str = "exec python3 app.py",
        ready: str = "",
        env: dict[str, str] | None = None,
        **more: Any,
    ) -> Capture:
        command = SandboxCommand("", self.tree, self.root / "output", 0.0, env={"FRONTEND_PORT": PORT, **(env or {})})
        settings = AppSettings(start=start, ready=ready, pages=pages)
        return await capture_app(self.sandbox, command, settings, self.logs, **more)

    async def of_python(self, page: str, *pages: str, **more: Any) -> Capture:
        """Take pages of an application whose `page(path)` this is."""
        (self.tree / "app.py").write_text(SERVER % page)
        return await self.take(*pages, **more)


def by_name(shown: Capture) -> dict[str, CapturedPage]:
    return {page.page: page for page in shown.pages}


def quick(**seconds: float) -> CaptureTimeouts:
    """Little patience where something is known not to come; much of it for whatever only takes its time."""
    return CaptureTimeouts(**{"settle_s": 0.5, "at_once_s": 60.0, "detached_s": 30.0, **seconds})


def one_pixel() -> bytes:
    """A PNG."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(4))) + chunk(b"IEND", b"")

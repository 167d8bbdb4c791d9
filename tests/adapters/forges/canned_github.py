"""A server that answers what a test has laid out, over real HTTP: for answers that no orderly GitHub gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Canned:
    """`answers`: "GET /path" → (status, headers, body as JSON or as bytes). `asked`: (method, path with query, headers)
    of every request, in order; a path that nothing is laid out for gets 404."""

    url: str = ""
    answers: dict[str, tuple[int, dict[str, str], Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def put(self, request: str, status: int, body: Any = None, **headers: str) -> None:
        self.answers[request] = (status, {name.replace("_", "-"): text for name, text in headers.items()}, body)


@contextmanager
def canned() -> Iterator[Canned]:
    laid_out = Canned()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            laid_out.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
            unknown: tuple[int, dict[str, str], Any] = (404, {}, {"message": "Not Found"})
            status, headers, body = laid_out.answers.get(f"{self.command} {self.path.partition('?')[0]}", unknown)
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response_only(status)
            for name, text in headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PATCH = do_DELETE = answer

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    laid_out.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield laid_out
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)

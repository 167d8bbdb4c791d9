"""A git server over HTTP in a thread of its own, for tests that call git as the engine does: synchronously."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from aiohttp import web

from perdure.adapters.git.credentials import Credential
from perdure.rehearsal.github import smart_http
from perdure.rehearsal.github.smart_http import Cut, Moment, Moved, Refusal, SmartHTTP, Visit

TOKEN = "ghp_TheTokenOfTheseTests0123456789"


@dataclass
class GitServer:
    """Bare repositories below `root` as `owner/name.git`, private: all of them want `TOKEN`.

    answers  a repository's name → what is answered instead of it; a `str` is where a redirect leads
    """

    root: Path
    answers: dict[str, Refusal | Moved] = field(default_factory=dict)
    redirect: str = ""
    visits: list[Visit] = field(default_factory=list)
    disturb: Callable[[Visit, Moment], web.Response | Cut | None] = lambda visit, moment: None
    pause_s: float = 0.0
    url: str = ""

    def __enter__(self) -> GitServer:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def credential(self, url: str) -> Credential | None:
        """This server's keys, as a Keyring has them."""
        return Credential(self.url, "x-access-token", TOKEN) if url.startswith(f"{self.url}/") else None

    def home_server(self) -> str:
        return self.url

    @property
    def passwords(self) -> set[str | None]:
        return {visit.password for visit in self.visits}

    async def _start(self) -> None:
        app = web.Application()
        if self.redirect:
            app.router.add_route("*", "/{path:.*}", self._elsewhere)
        SmartHTTP(self._allowed, disturb=self._disturbed).add_routes(app)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _elsewhere(self, request: web.Request) -> web.Response:
        return web.Response(status=301, headers={"Location": f"{self.redirect}{request.path_qs}"})

    async def _disturbed(self, visit: Visit, moment: Moment) -> web.Response | Cut | None:
        await asyncio.sleep(self.pause_s)
        return self.disturb(visit, moment)

    def _allowed(self, visit: Visit) -> Path | Refusal | Moved:
        self.visits.append(visit)
        answer = self.answers.get(visit.repository)
        if isinstance(answer, Moved):
            return answer
        if visit.password is None:
            return smart_http.ASK
        if visit.password != TOKEN:
            return smart_http.BAD_CREDENTIALS
        place = self.root / f"{visit.repository}.git"
        return answer or (place if place.exists() else smart_http.NOT_FOUND)

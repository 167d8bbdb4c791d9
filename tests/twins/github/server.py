"""The twin itself: API, git and pages on one port, and what a test does to it or looks at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web

from perdure.models.errors import BadInput
from perdure.rehearsal.server import REHEARSAL_STOP_S
from tests.twins.github.access import Keys
from tests.twins.github.api import PREFIX, Api
from tests.twins.github.contents import Contents
from tests.twins.github.doorman import Doorman
from tests.twins.github.faults import UNICORN, Faults
from tests.twins.github.pages import Pages
from tests.twins.github.smart_http import SmartHTTP
from tests.twins.github.state import World

MAX_BODY = 64 * 1024 * 1024
"""Bytes; a push is one request."""


class GitHubTwin(Contents):
    """A GitHub Enterprise Server that runs in this process, as an async context manager.

    Bare repositories live below `root` as `owner/name.git`. `token` is a classic one of `login`, who may write to every
    repository. `url` is what PERDURE_GITHUB_URL points at, `calls` are (method, path, operation, status) of every
    answer, `violations` what clients sent or the twin answered against GitHub's own description of its API, `faults`
    what shall go wrong; while `down`, nothing but 502. Port 0 takes a free one. BadInput when the port is taken.

    What there is in it, and what happens to it: Contents.
    """

    def __init__(
        self,
        root: Path,
        *,
        token: str,
        login: str = "perdure-bot",
        scopes: Sequence[str] = ("repo",),
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.down = False
        self.faults = Faults()
        self.violations: list[str] = []
        self.calls: list[tuple[str, str, str, int]] = []
        super().__init__(World(root), Keys(), login)
        self.add_token(token, login=login, scopes=scopes)
        self._address = (host, port)
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return self._world.url

    async def __aenter__(self) -> GitHubTwin:
        doorman = Doorman(self._world, self._keys)
        git = SmartHTTP(doorman.allowed, disturb=self.faults.disturb, log=self._log)
        api = Api(self._world, self._keys, self.faults, self.violations, self._log)
        app = web.Application(client_max_size=MAX_BODY, middlewares=[self._unless_down])
        app.router.add_route("*", PREFIX, api.handle)
        app.router.add_route("*", f"{PREFIX}/{{path:.*}}", api.handle)
        git.add_routes(app)
        Pages(self._world).add_routes(app)
        # With cancellation a slow answer ends as soon as its client goes away.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=REHEARSAL_STOP_S)
        await self._runner.setup()
        host, port = self._address
        try:
            await web.TCPSite(self._runner, host, port).start()
        except (OSError, OverflowError) as error:
            await self._runner.cleanup()
            reason = error.strerror if isinstance(error, OSError) else "a port is 0 to 65535"
            raise BadInput(
                f"GitHub's twin cannot listen: {reason}",
                where=f"{host}:{port}",
                fix="choose another --port, or 0 for any free one",
            ) from None
        self._world.url = "http://{}:{}".format(*self._runner.addresses[0][:2])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def _log(self, method: str, path: str, operation: str, status: int) -> None:
        self.calls.append((method, path, operation, status))

    @web.middleware
    async def _unless_down(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.down:
            self._log(request.method, request.path_qs, "", 502)
            return web.Response(status=502, text=UNICORN, content_type="text/html")
        response: web.StreamResponse = await handler(request)
        if response.status == 401 and not request.path.startswith(PREFIX):
            # git asks again with its token. On the same connection its curl would ask a third time when that is cut,
            # and a fault that should be seen would not be.
            response.force_close()
        return response

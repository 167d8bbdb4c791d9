"""The views of the page; each module has `routes()`."""

from __future__ import annotations

from aiohttp import web

from perdure.page.views import backlog, decide, delivery, inbox


def all_routes() -> list[web.RouteDef]:
    return [*inbox.routes(), *decide.routes(), *delivery.routes(), *backlog.routes()]

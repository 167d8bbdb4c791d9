"""`/`: all that waits for you, the longest first, and below it the board."""

from __future__ import annotations

from aiohttp import web

from perdure.page.render import perdure_of, render


def routes() -> list[web.RouteDef]:
    return [web.get("/", inbox)]


async def inbox(request: web.Request) -> web.Response:
    perdure = perdure_of(request)
    return render(request, "inbox.html", waiting=await perdure.waiting(), rows=await perdure.list())

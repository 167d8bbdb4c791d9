"""The views of the page: each module has `routes()`, and `all_routes` collects them for the server."""

from __future__ import annotations

from aiohttp import web

from perdure.page.views import activity, backlog, conversation, decide, delivery, hosts, inbox, review, start, style


def all_routes() -> list[web.RouteDef]:
    """Collect the routes of all views."""
    views = (inbox, review, decide, delivery, conversation, backlog, activity, hosts, start, style)
    return [route for view in views for route in view.routes()]

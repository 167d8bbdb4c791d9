"""`/compare?one=ID&other=ID`: two deliveries side by side, as `perdure compare` shows them. No workflow is asked."""

from __future__ import annotations

from aiohttp import web

from perdure.cli.look.compare import comparison, rows_of
from perdure.models.errors import BadInput
from perdure.page.render import perdure_of, render


def routes() -> list[web.RouteDef]:
    return [web.get("/compare", compare)]


async def compare(request: web.Request) -> web.StreamResponse:
    """BadInput without two ids, and for one that is not there."""
    one, other = (request.query.get(name, "").strip() for name in ("one", "other"))
    if not one or not other or one == other:
        raise BadInput("name two deliveries to compare", fix="/compare?one=ID&other=ID")
    found = await comparison(perdure_of(request).delivery(one), perdure_of(request).delivery(other))
    return render(request, "compare.html", found=found, rows=rows_of(found)[1:])

"""`perdure page`: all that runs and waits for you, in a browser."""

from __future__ import annotations

import signal
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.screen import Screen
from perdure.cli.session import carry_out, connected

if TYPE_CHECKING:
    from perdure.page.server import Page, Place


def page(
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", min=1, max=65535, help="Default: 8240; a taken one: the next.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser, on a terminal.")] = True,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where it listens.")] = "127.0.0.1",
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Its certificate, for other machines.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key.")] = None,
    proxy_user_header: Annotated[
        str, typer.Option("--proxy-user-header", metavar="NAME", help="In which a proxy before it names the person.")
    ] = "",
    proxy: Annotated[
        list[str] | None, typer.Option("--proxy", metavar="HOST", help="The name that proxy is asked by; repeatable.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """The page with all that runs and waits for you, in a browser, where you decide too.

    Where perdure up keeps one, its address; otherwise one that runs until Ctrl-C.
    """
    from perdure.adapters.system.home import Home
    from perdure.local.page import page_address
    from perdure.page.server import PORT, Page, Place

    screen, names = Screen(json=json), tuple(proxy or ())
    place = Place(host, port or PORT, names, proxy_user_header, tls_cert, tls_key)
    if place == Place() and port is None and (there := page_address(Home.find())):
        url, _, token = there.partition("/?token=")
        _tell(Page(url, token), screen, open_)  # perdure up keeps it
        return
    carry_out(_run(place, screen, show=open_))


async def _run(place: Place, screen: Screen, *, show: bool) -> None:
    import asyncio

    from perdure.adapters.system.home import Home
    from perdure.cli.host.web import pages_of
    from perdure.client import Perdure
    from perdure.local.page import over, token_of
    from perdure.page.server import serve, settle

    home = Home.find()
    place.context()  # before anything is asked
    client = (await connected(screen)).client
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    # Many people behind one proxy: a path of this host is no repository of theirs, unless its owner's settings say so.
    key = None if place.user_header else home.key()
    while not ended.is_set():
        token = token_of(home)
        async with serve(Perdure(client, key), token, place, await pages_of(home)) as page:
            _tell(page, screen, show)
            settle()
            await over(home, token, ended)


def _tell(page: Page, screen: Screen, show: bool) -> None:
    if page.taken is not None:
        screen.say(f"port {page.taken} is taken: {page.url.rpartition(':')[2]} instead")
    if screen.json:
        screen.data({"url": page.url, "address": page.address})
    else:
        screen.line(page.address)
    if show and screen.terminal:
        webbrowser.open(page.address)

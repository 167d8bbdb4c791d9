"""`perdure page`: all that runs and waits for you, in a browser."""

from __future__ import annotations

import signal
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, run_coroutine

if TYPE_CHECKING:
    from perdure.page.server import ListenAddress, ServedPage


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
    from perdure.page.server import PORT, ListenAddress, ServedPage

    screen, names = Screen(json=json), tuple(proxy or ())
    place = ListenAddress(host, port or PORT, names, proxy_user_header, tls_cert, tls_key)
    if place == ListenAddress() and port is None and (running_page := page_address(Home.find())):
        url, _, token = running_page.partition("/?token=")
        _show_address(ServedPage(url, token), screen, open_)  # perdure up keeps it
        return
    run_coroutine(_serve_page(place, screen, show=open_))


async def _serve_page(place: ListenAddress, screen: Screen, *, show: bool) -> None:
    """Run the page's server until Ctrl-C or SIGTERM, and print its address; with `show` open it in a browser.

    Begins anew, with a new token, whenever this home's token is changed or removed. Raises BadInput for an address that
    strangers could listen on.
    """
    import asyncio

    from perdure.adapters.system.home import Home
    from perdure.cli.host.web import web_ui_base_url
    from perdure.client import Perdure
    from perdure.local.page import ensure_page_token, wait_until_token_invalid
    from perdure.page.server import freeze_loaded_objects, serve_page

    home = Home.find()
    place.make_ssl_context()  # checks the address and the certificate before anything else is done
    client = (await connect_client(screen)).client
    stopped = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stopped.set)
    # Many people are behind one proxy: a path of this host is no repository of theirs, unless its owner's settings say
    # so.
    key = None if place.user_header else home.key()
    while not stopped.is_set():
        token = ensure_page_token(home)
        async with serve_page(Perdure(client, key), token, place, await web_ui_base_url(home)) as page:
            _show_address(page, screen, show)
            freeze_loaded_objects()
            await wait_until_token_invalid(home, token, stopped)


def _show_address(page: ServedPage, screen: Screen, show: bool) -> None:
    """Print the page's address, and which port it has instead of a taken one; with `show` open it in a browser on a
    terminal."""
    if page.occupied_port is not None:
        screen.say(f"port {page.occupied_port} is taken: {page.url.rpartition(':')[2]} instead")
    if screen.json:
        screen.print_json({"url": page.url, "address": page.address})
    else:
        screen.print_line(page.address)
    if show and screen.is_terminal:
        webbrowser.open(page.address)

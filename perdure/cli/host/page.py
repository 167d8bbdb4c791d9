"""`perdure page`: the page's address where it runs, or a page that runs until Ctrl-C."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from perdure.adapters.system.home import Home
from perdure.cli.event_loop import run_coroutine
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client
from perdure.local.page import PORT, ListenAddress, ServedPage, page_address, run_page


def page(
    port: int | None,
    open_: bool,
    host: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    proxy_user_header: str,
    proxy: list[str] | None,
    json: bool,
) -> None:
    """Print the address of the page that `perdure up` keeps; without one, run a page until Ctrl-C or SIGTERM.

    A page is run, too, when another address, port, certificate or proxy is named. On a terminal, with `open_`, it is
    opened in a browser. Raises BadInput for an address that strangers could listen on, TemporalUnreachable when no
    server runs.
    """
    screen, names = Screen(json=json), tuple(proxy or ())
    place = ListenAddress(host, port or PORT, names, proxy_user_header, tls_cert, tls_key)
    if place == ListenAddress() and port is None and (running_page := page_address(Home.find())):
        url, _, token = running_page.partition("/?token=")
        _show_address(ServedPage(url, token), screen, open_)  # perdure up keeps it
        return
    run_coroutine(_run_page(place, screen, show=open_))


async def _run_page(place: ListenAddress, screen: Screen, *, show: bool) -> None:
    """Run a page until Ctrl-C or SIGTERM, and print its address; with `show` open it in a browser.

    Begins anew, with a new token, whenever this home's token is changed or removed. Raises BadInput for an address that
    strangers could listen on or that is taken, TemporalUnreachable when no server runs, and PerdureError when the page
    ends by itself.
    """
    place.make_ssl_context()  # checks the address and the certificate before anything else is done
    await connect_client(screen)  # says why there is nothing to show
    async for page in run_page(Home.find(), place):
        _show_address(page, screen, show)


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

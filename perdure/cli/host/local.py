"""The commands for what runs on this host: `up`, `down`, `worker`, `server`, `ui`, `page`, `temporal`, `gc`,
`rehearse`, `demo`; what they run is imported only when they are called."""

from __future__ import annotations

import os
import sys
import webbrowser
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, run_coroutine
from perdure.models.errors import PerdureError, TemporalUnreachable
from perdure.render.formatting import pluralise
from perdure.secrets import environment, handed_over, is_secret

if TYPE_CHECKING:
    from perdure.adapters.system.home import Home
    from perdure.local.page import ListenAddress, ServedPage
    from perdure.local.server import ServerInfo


def up(detach: bool) -> None:
    """Run Temporal, a worker and the page for this home; a worker that dies is started again at once."""
    from perdure.adapters.repository.host import load_host_config
    from perdure.local.up import bring_up as run

    load_host_config(os.environ)  # a worker that cannot read its settings would be started again and again
    run_coroutine(run(_home(), detach, Screen().say))


def down() -> None:
    """End worker, page and server of this home."""
    from perdure.local.up import bring_down as run

    run_coroutine(run(_home(), Screen().say))


def worker(publisher: bool) -> None:
    """Run one worker in the foreground, for service managers and containers; SIGTERM lets it finish its turns."""
    from perdure.local.checks import check_home
    from perdure.local.places import worker_command, worker_environment

    home = _home()
    check_home(home.root)
    command = worker_command()
    sys.stdout.flush()
    role = {"PERDURE_WORKER_ROLE": "publisher"} if publisher else {}
    with handed_over({**environment(), **role}) as (env, pipe):
        os.set_inheritable(pipe, True)
        os.execve(command[0], command, worker_environment(home, env))  # noqa: S606 - this process becomes it


def start(port: int | None, ui_port: int | None) -> None:
    """Start it in the background."""
    from perdure.local.server import ensure_server

    _print_server(run_coroutine(ensure_server(_home(), port=port, ui_port=ui_port, say=Screen().say)))


def stop() -> None:
    """End it; nothing is lost."""
    from perdure.local.server import stop_server

    print("Temporal ended" if run_coroutine(stop_server(_home())) else "Temporal was not running")


def status(json: bool) -> None:
    """Say if it runs, and where; exit code 3 when it does not."""
    from perdure.local.server import find_server

    home, screen = _home(), Screen(json=json)
    info = run_coroutine(find_server(home))
    if info is None:
        raise TemporalUnreachable("Temporal is not running", where=str(home.root), fix="perdure up --detach")
    if json:
        screen.print_json({name: value for name, value in asdict(info).items() if name != "started"})
    else:
        _print_server(info)


def ui(show: bool) -> None:
    """Open the Web UI with all deliveries; prints the address of the page too, where it runs."""

    from perdure.local.connect import UI_VARIABLE, external_server_config, web_ui_url
    from perdure.local.page import page_address

    home = _home()
    web_ui = run_coroutine(web_ui_url(home))
    if not web_ui and external_server_config() is not None:
        raise PerdureError(
            "where the Web UI of that Temporal server is, it does not say", fix=f"export {UI_VARIABLE}=https://…"
        )
    if not web_ui:
        raise TemporalUnreachable("Temporal is not running", where=str(home.root), fix="perdure up --detach")
    print(web_ui, flush=True)
    if page_url := page_address(home):
        print(f"page {page_url}", flush=True)
    if not show and sys.stdout.isatty():
        webbrowser.open(web_ui)


def temporal(context: typer.Context) -> None:
    """The bundled Temporal command line, against this home's server: perdure temporal workflow list."""
    from perdure.local.connect import embedded_environment, external_server_config
    from perdure.local.places import temporal_binary
    from perdure.local.server import find_server

    passed_variables = {
        name: value for name, value in environment().items() if not is_secret(name) or name.startswith("TEMPORAL_")
    }
    binary, env = str(temporal_binary()), passed_variables
    needs_server = bool(context.args) and not {"--help", "-h", "--version", "-v"} & set(context.args)
    if needs_server and external_server_config() is None:
        home = _home()
        running = run_coroutine(find_server(home))
        if running is None:
            raise TemporalUnreachable("Temporal is not running", where=str(home.root), fix="perdure up --detach")
        # As variables, not as options: an --address among the arguments still wins, whatever the subcommand.
        env = embedded_environment(env) | {"TEMPORAL_ADDRESS": running.address, "TEMPORAL_NAMESPACE": running.namespace}
    sys.stdout.flush()
    os.execve(binary, [binary, *context.args], env)  # noqa: S606 - this process becomes it


def _home() -> Home:
    from perdure.adapters.system.home import Home

    return Home.find()


def _print_server(info: ServerInfo) -> None:
    print(f"Temporal at {info.address} (pid {info.pid}), Web UI {info.ui_url}", flush=True)


def gc(days: int, unmerged: bool, dry_run: bool, json: bool) -> None:
    """Remove worktrees, checkpoints and artifacts of deliveries that ended long ago."""
    from perdure.adapters.system.home import Home
    from perdure.local.connect import connect_to_temporal
    from perdure.local.retention import RetentionVerdict, collect_garbage

    screen, home = Screen(json=json), Home.find()

    async def collect_in_home() -> tuple[list[RetentionVerdict], list[str], int]:
        client = await connect_to_temporal(home, start=False, say=screen.say)
        return await collect_garbage(client, home, timedelta(days=days), also_unmerged=unmerged, dry=dry_run)

    verdicts, problems, freed = run_coroutine(collect_in_home())
    if json:
        deliveries = [
            asdict(verdict) | {"ended": verdict.ended.isoformat() if verdict.ended else None} for verdict in verdicts
        ]
        screen.print_json({"deliveries": deliveries, "problems": problems, "freed_bytes": freed, "dry_run": dry_run})
    else:
        for verdict in verdicts:
            what = (
                f"stays: {verdict.why}"
                if verdict.why
                else f"goes, with {pluralise(verdict.refs, 'checkpoint and artifact ref')}"
            )
            screen.print_line(f"{'·' if verdict.why else '✓'} {verdict.delivery}  {what}")
        screen.print_lines(f"! {problem}" for problem in problems)
        removed_count = sum(not verdict.why for verdict in verdicts)
        outcome = "nothing was removed (--dry-run)" if dry_run else f"{freed / 1024**2:.0f} MB freed"
        screen.print_line(f"{removed_count} of {pluralise(len(verdicts), 'delivery', 'deliveries')} · {outcome}")
    raise typer.Exit(1 if problems else 0)


def rehearse(file: Path, port: int) -> None:
    """Play a model: a Messages API server that answers from a screenplay."""
    from perdure.rehearsal.server import play_file

    play_file(file, port)


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
    """The page with all that runs and waits for you, in a browser, where you decide too."""
    from perdure.adapters.system.home import Home
    from perdure.local.page import PORT, ListenAddress, ServedPage, page_address

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
    strangers could listen on.
    """
    from perdure.local.page import run_page

    place.make_ssl_context()  # checks the address and the certificate before anything else is done
    await connect_client(screen)  # says why there is nothing to show
    async for page in run_page(_home(), place):
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


def demo(
    keep: Path | None,
    github: bool,
    backlog: bool,
    agent: str | None,
    fast: bool,
    kills: int,
    no_kill: bool,
    yes: bool,
    json: bool,
) -> None:
    """See a delivery survive kill -9, with a scripted model: no key, no account, nothing of yours is touched."""
    from perdure.demo.demos import DemoOptions
    from perdure.demo.demos import run_demo as run

    raise typer.Exit(run(DemoOptions(keep, github, fast, 0 if no_kill else kills, yes, json, backlog, agent)))

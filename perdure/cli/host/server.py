"""The embedded Temporal server: `perdure server`; its address, `perdure address`; its Web UI, `perdure ui`; its command
line, `perdure temporal`."""

from __future__ import annotations

import os
import sys
import webbrowser
from dataclasses import asdict

import typer

from perdure.adapters.system.home import Home
from perdure.cli.event_loop import run_coroutine
from perdure.cli.screen import Screen
from perdure.local.connect import DEFAULT_ADDRESS, UI_VARIABLE, embedded_environment, external_server_config, web_ui_url
from perdure.local.page import page_address
from perdure.local.places import temporal_binary
from perdure.local.server import ServerInfo, ensure_server, find_server, stop_server
from perdure.models.errors import PerdureError, TemporalUnreachable
from perdure.secrets import environment, is_secret


def start(port: int | None, ui_port: int | None) -> None:
    """Start it in the background."""
    _print_server(run_coroutine(ensure_server(Home.find(), port=port, ui_port=ui_port, say=Screen().say)))


def stop() -> None:
    """End it; nothing is lost."""
    print("Temporal ended" if run_coroutine(stop_server(Home.find())) else "Temporal was not running")


def status(json: bool) -> None:
    """Print where this home's embedded server runs, as a line or JSON.

    Raises TemporalUnreachable (exit code 3) when it does not run or does not answer.
    """
    info, screen = _running_server(), Screen(json=json)
    if json:
        screen.print_json({name: value for name, value in asdict(info).items() if name != "started"})
    else:
        _print_server(info)


def address() -> None:
    """Print the address of the Temporal server that commands connect to: the one that TEMPORAL_* variables or a profile
    name, whether it answers or not, else the embedded one.

    Raises TemporalUnreachable (exit code 3) when the embedded one does not run or does not answer, and BadInput when
    the configuration cannot be read.
    """
    external = external_server_config()
    print(_running_server().address if external is None else external.get("target_host") or DEFAULT_ADDRESS, flush=True)


def ui(show: bool) -> None:
    """Print the address of the Web UI, and of the page when one runs; on a terminal, unless `show`, open the Web UI in
    a browser.

    Raises TemporalUnreachable when the embedded server does not run, and PerdureError when another server is configured
    and PERDURE_UI_URL does not say where its Web UI is.
    """

    home = Home.find()
    web_ui = run_coroutine(web_ui_url(home))
    if not web_ui and external_server_config() is not None:
        raise PerdureError(
            "where the Web UI of that Temporal server is, it does not say", fix=f"export {UI_VARIABLE}=https://…"
        )
    if not web_ui:
        raise _not_running(home)
    print(web_ui, flush=True)
    if page_url := page_address(home):
        print(f"page {page_url}", flush=True)
    if not show and sys.stdout.isatty():
        webbrowser.open(web_ui)


def temporal(context: typer.Context) -> None:
    """Replace this process by the bundled `temporal` program with the same arguments; never returns.

    It is led to this home's server, or to the one that TEMPORAL_* variables name, and gets no secret but theirs. Raises
    TemporalUnreachable when the embedded server is needed and does not run, BadInput when the program is missing.
    """
    passed_variables = {
        name: value for name, value in environment().items() if not is_secret(name) or name.startswith("TEMPORAL_")
    }
    binary, env = str(temporal_binary()), passed_variables
    needs_server = bool(context.args) and not {"--help", "-h", "--version", "-v"} & set(context.args)
    if needs_server and external_server_config() is None:
        running = _running_server()
        # As variables, not as options: an --address among the arguments still wins, whatever the subcommand.
        env = embedded_environment(env) | {"TEMPORAL_ADDRESS": running.address, "TEMPORAL_NAMESPACE": running.namespace}
    sys.stdout.flush()
    os.execve(binary, [binary, *context.args], env)  # noqa: S606 - this process becomes it


def _running_server() -> ServerInfo:
    """Return this home's embedded server. Raises TemporalUnreachable when it does not run or does not answer."""
    home = Home.find()
    if (info := run_coroutine(find_server(home))) is None:
        raise _not_running(home)
    return info


def _not_running(home: Home) -> TemporalUnreachable:
    return TemporalUnreachable("Temporal is not running", where=str(home.root), fix="perdure up --detach")


def _print_server(info: ServerInfo) -> None:
    print(f"Temporal at {info.address} (pid {info.pid}), Web UI {info.ui_url}", flush=True)

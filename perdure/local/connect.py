"""Client connections to Temporal: the server that TEMPORAL_* variables name, else the embedded one of this home; the
address of its Web UI; whether it is still this home's; why no worker answers. Used by the command line, the page, the
demo and the worker; `perdure.client` is given a client and does not connect."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.service import RPCError, RPCStatusCode

from perdure.adapters.system.files import is_locked
from perdure.adapters.system.home import Home
from perdure.client.server.capabilities import log_missing_capabilities
from perdure.converter import perdure_data_converter
from perdure.local import Say
from perdure.local.identity import NAMESPACE, identity_namespace, quiet_runtime, read_server_record, worker_runtime
from perdure.local.places import Places
from perdure.local.server import ensure_server, find_server
from perdure.models.errors import BadInput, NoWorker, PerdureError, TemporalUnreachable
from perdure.models.limits import SERVER_ANSWER_S
from perdure.secrets import environment
from perdure.text import is_text, shorten

if TYPE_CHECKING:
    from perdure.adapters.system.home import Home

HEARTBEAT_THROTTLE = timedelta(seconds=1)
"""The interval at which a heartbeat is sent on; the SDK's default is only after 0.8 × timeout (24 s)."""

HEARTBEAT_THROTTLE_CLOUD = timedelta(seconds=5)
"""The interval at which a heartbeat is sent on at Temporal Cloud, where each that arrives is an action to pay for."""

SILENCE_S = 2.0
"""Time after which a person is told that the server has not answered a call: the SDK asks again for ten, and says
nothing."""

_WAITING_CALLS = frozenset(
    {
        *("query_workflow", "update_workflow_execution", "poll_workflow_execution_update", "execute_multi_operation"),
        *("poll_activity_execution", "start_activity_execution"),
    }
)
"""Calls that a server answers once a worker has."""

DEFAULT_ADDRESS = "localhost:7233"
_CLOUD_ADDRESS = re.compile(r"(.*\.)?(tmprl\.cloud|api\.temporal\.io)(:\d+)?")
"""Addresses of Temporal Cloud: of a namespace, and of a region."""


async def connect_to_temporal(home: Home, *, start: bool, say: Say, for_worker: bool = False) -> Client:
    """Return a client of the external server if one is configured, else of the embedded one.

    start       whether to start the embedded server if it does not run
    say         gets a line where the server is started
    for_worker  whether the client is a worker's, which reports its state more often and inherits Perdure's plugin; what
                an external server lacks is logged then
    Raises TemporalUnreachable when the server does not run or does not answer within SERVER_ANSWER_S seconds, BadInput
    when the configuration cannot be read or the embedded server cannot be used here, and PerdureError when one that is
    started here ends.
    """
    external = external_server_config()
    if external is not None:
        client = await _open_client(external, for_worker, fix=_fix_for_external_server())
        if for_worker:
            await log_missing_capabilities(client)
        else:
            _tell_of_silence(client, say)
        return client
    server = await ensure_server(home, say=say) if start else await find_server(home)
    if server is None:
        raise TemporalUnreachable(
            "Temporal is not running", where=str(home.root), fix="perdure up --detach starts it and a worker"
        )
    embedded = ClientConnectConfig(target_host=server.address, namespace=server.namespace)
    return await _open_client(embedded, for_worker, fix="perdure down, then perdure up --detach")


def external_server_config() -> ClientConnectConfig | None:
    """Return the settings of the server that TEMPORAL_* variables or a profile name; None: the embedded one is meant.

    It is meant, too, where they say no more than its own address, as after export TEMPORAL_ADDRESS=$(perdure address).
    Variables that are not UTF-8 text are left out. Raises BadInput when such a variable is one of Temporal's, or the
    profile file or profile cannot be read.
    """
    variables = environment()
    for name in [name for name, value in variables.items() if not is_text(name + value)]:
        if name.startswith("TEMPORAL_"):
            where, fix = f"environment variable {name}", "set it as UTF-8, or unset it"
            raise BadInput("a variable of Temporal is not UTF-8 text", where=where, fix=fix)
        del variables[name]  # the library takes none of them otherwise
    try:
        config = ClientConfig.load_client_connect_config(override_env_vars=variables)
    except RuntimeError as error:  # a file that does not parse, a profile that does not exist
        where = os.environ.get("TEMPORAL_CONFIG_FILE") or "TEMPORAL_* variables and profile file"
        raise BadInput(f"the Temporal configuration cannot be read: {error}", where=where) from None
    return None if not config or _is_embedded(config) else config


def _is_embedded(config: ClientConnectConfig) -> bool:
    """Return whether settings name no more than the embedded server of this process's home, that which runs or the last
    one."""
    says_more = config.keys() - {"target_host", "namespace"} or config.get("namespace", NAMESPACE) != NAMESPACE
    places, address = Places(Home.find()), config.get("target_host", "").replace("localhost", "127.0.0.1")
    records = (read_server_record(places), read_server_record(places, last=True))
    return not says_more and any(record is not None and record.address == address for record in records)


def heartbeat_throttle(client: Client) -> timedelta:
    """Return how often an attempt's heartbeats may reach this client's server, and cancellations the attempt.

    It is 1 s, and 5 s at Temporal Cloud.
    """
    billed = _CLOUD_ADDRESS.fullmatch(client.service_client.config.target_host)
    return HEARTBEAT_THROTTLE_CLOUD if billed else HEARTBEAT_THROTTLE


def embedded_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without anything that leads to another Temporal server than the embedded one.

    TEMPORAL_* variables are left out, and TEMPORAL_CONFIG_FILE names the null device, so that no profile file is read.
    """
    other_variables = {name: value for name, value in env.items() if not name.startswith("TEMPORAL_")}
    return other_variables | {"TEMPORAL_CONFIG_FILE": os.devnull}


async def _open_client(config: ClientConnectConfig, for_worker: bool, *, fix: str) -> Client:
    """Open a connection within SERVER_ANSWER_S seconds and return the client: with Perdure's plugin for a worker, else
    with its data converter alone, for the SDK's worker takes a tenth of a second to load.

    Raises TemporalUnreachable, with `fix` as the advice, on a timeout and on every error of the SDK.
    """
    address = config.get("target_host") or DEFAULT_ADDRESS
    plugins = []
    if for_worker:
        from perdure.plugin import perdure_plugin

        plugins = [perdure_plugin()]
    try:
        async with asyncio.timeout(SERVER_ANSWER_S):
            return await Client.connect(
                address,
                namespace=config.get("namespace") or NAMESPACE,
                api_key=config.get("api_key"),
                tls=config.get("tls"),
                rpc_metadata=config.get("rpc_metadata") or {},
                runtime=worker_runtime() if for_worker else quiet_runtime(),
                data_converter=perdure_data_converter(),
                plugins=plugins,
            )
    except TimeoutError:
        raise TemporalUnreachable(
            f"no Temporal server answered within {SERVER_ANSWER_S:.0f} s", where=address, fix=fix
        ) from None
    except (RPCError, RuntimeError, ValueError) as error:
        reason = shorten(innermost_message(error), 200) or type(error).__name__
        raise TemporalUnreachable(f"Temporal cannot be reached: {reason}", where=address, fix=fix) from None


def _fix_for_external_server() -> str:
    """Return the advice for a server that TEMPORAL_* variables or a profile name and that cannot be reached."""
    named_by = "TEMPORAL_ADDRESS" if os.environ.get("TEMPORAL_ADDRESS") else "your Temporal profile"
    return f"look whether that server runs and {named_by} names it; deliveries go on once it is back"


def _tell_of_silence(client: Client, say: Say) -> None:
    """Let `say` get a line, with the time since when, where the server has not answered a call for SILENCE_S seconds;
    once for all calls until it answers."""
    service, loop, silent = client.service_client, asyncio.get_running_loop(), set[str]()
    call_service = service._rpc_call

    def tell(since: str) -> None:
        if not silent:
            say(f"Temporal has not answered since {since}; it is asked again")
        silent.add(since)

    async def call(rpc: str, req: Any, resp_type: Any, **options: Any) -> Any:
        if rpc in _WAITING_CALLS or getattr(req, "wait_new_event", False):
            return await call_service(rpc, req, resp_type, **options)
        timer = loop.call_later(SILENCE_S, tell, time.strftime("%H:%M:%S"))
        try:
            response = await call_service(rpc, req, resp_type, **options)
        finally:
            timer.cancel()
        silent.clear()
        return response

    service._rpc_call = call  # type: ignore[method-assign]  # the SDK has no other place for all calls


def innermost_message(error: Exception) -> str:
    """Return the innermost message of an SDK error, whose text nests several Rust errors."""
    text = " ".join(str(error).split())
    inner = re.findall(r'(?:message|error): "([^"]+)"', text)
    return inner[-1] if inner else text


async def wrong_server_reason(client: Client, home: Home) -> str:
    """Return why this client is not, or no longer, at the home's own server; empty while it is.

    First compares the client's address with the one in the server's record, whoever answers there; then asks for the
    home's identity namespace. Empty when nobody answers that, and always where TEMPORAL_* variables name a server.
    """
    if external_server_config() is not None:
        return ""
    record = read_server_record(Places(home))
    if record is not None and record.address != client.service_client.config.target_host:
        return f"this home's server is at {record.address} now"
    try:
        async with asyncio.timeout(SERVER_ANSWER_S):
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=identity_namespace(home))
            )
    except TimeoutError:
        return ""
    except RPCError as error:
        return "another home's server answers at this address" if error.status == RPCStatusCode.NOT_FOUND else ""
    return ""


_LIST_QUERY = 'WorkflowType="Delivery" OR WorkflowType="Backlog"'
UI_VARIABLE = "PERDURE_UI_URL"
"""The variable that names the Web UI of a server that is not the embedded one: Temporal itself does not say it."""


async def find_web_ui(home: Home) -> tuple[str, str] | None:
    """Return (the Web UI's address, the namespace); None when the address is not known or the embedded server does not
    run.

    For a server that TEMPORAL_* variables name, the address is that in PERDURE_UI_URL. Raises TemporalUnreachable when
    the embedded server runs and does not answer, and BadInput when Temporal's configuration cannot be read.
    """
    config = external_server_config()
    if config is not None:
        url = os.environ.get(UI_VARIABLE, "").rstrip("/")
        return (url, config.get("namespace") or "default") if url else None
    server = await find_server(home)
    return (server.ui_url, server.namespace) if server else None


async def web_ui_url(home: Home, id: str = "", kind: str = "workflows") -> str:
    """Return the address in the Web UI of the delivery, backlog or schedule `id`; empty `id`: of the list of all.

    `kind` is `workflows` or `schedules`. Empty when there is no Web UI, or the embedded server does not run. Raises
    TemporalUnreachable when that server runs and does not answer, and BadInput when Temporal's configuration cannot be
    read.
    """
    base_url = await web_ui_base_url(home, kind)
    if not base_url:
        return ""
    return f"{base_url}/{quote(id, safe='')}" if id else f"{base_url}?query={quote(_LIST_QUERY)}"


async def web_ui_base_url(home: Home, kind: str = "workflows") -> str:
    """Return the address of all `kind` pages in the Web UI, to which `/<id>` is added; empty where there is no Web
    UI."""
    web_ui = await find_web_ui(home)
    return f"{web_ui[0]}/namespaces/{quote(web_ui[1], safe='')}/{kind}" if web_ui is not None else ""


NO_WORKER = "no worker is running: perdure up --detach starts one"
WORKER_STARTING = "the worker has not answered yet: it is starting, or the host is busy"
WORKER_RESTARTS = "this home's is starting, or the host is busy: ask again in some seconds"


def no_worker_reason() -> str:
    """Return the reason why no worker answers, as far as this host can tell.

    Where a supervisor of this home lives, it starts a worker again as soon as one dies: advice to start one would only
    confuse. Of workers on other hosts nothing is known here.
    """
    return WORKER_STARTING if has_supervisor() else for_this_server(NO_WORKER)


_START_BOTH = "perdure up --detach"


def for_this_server(advice: str) -> str:
    """Return advice to start a worker as it fits the server: `perdure up --detach` starts the embedded one as well,
    which is not meant where TEMPORAL_* variables name another."""
    if _START_BOTH not in advice or external_server_config() is None:
        return advice
    return advice.replace(_START_BOTH, "perdure worker")


def adapt_no_worker_error(error: PerdureError) -> PerdureError:
    """Return the error as people should see it.

    A NoWorker error advises to start a worker; when this home's supervisor is about to do so, it is replaced by a plain
    PerdureError that advises to ask again. Any other error is returned itself, its advice as it fits the server.
    """
    error.fix = for_this_server(error.fix)
    if not (isinstance(error, NoWorker) and has_supervisor()):
        return error
    return PerdureError(
        error.what,
        where=error.where,
        fix=f"{WORKER_RESTARTS}; {error.consequence}" if error.consequence else WORKER_RESTARTS,
    )


def has_supervisor() -> bool:
    """Return whether a supervisor of this home lives, and Temporal is the embedded server for which it works."""
    return external_server_config() is None and is_locked(Places(Home.find()).supervisor_lock)


def not_received_message() -> str:
    """Return the message about a decision that is recorded and that no worker has received yet, with the reason."""
    reason = WORKER_STARTING if has_supervisor() else for_this_server("no worker is running (perdure up --detach)")
    return f"recorded, not yet read: {reason}"

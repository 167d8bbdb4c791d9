"""Client connections to Temporal: the server that TEMPORAL_* variables name, else the embedded one of this home."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from datetime import timedelta

from temporalio.client import Client
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.service import RPCError

from perdure.adapters.system.home import Home
from perdure.local import Say
from perdure.local.identity import NAMESPACE
from perdure.local.runtimes import quiet_runtime, worker_runtime
from perdure.local.server import ensure_server, find_server
from perdure.models.errors import BadInput, TemporalUnreachable
from perdure.models.limits import SERVER_ANSWER_S
from perdure.plugin import Interceptors, perdure_plugin
from perdure.secrets import environment
from perdure.text import is_text

HEARTBEAT_THROTTLE = timedelta(seconds=1)
"""The interval at which a heartbeat is sent on; the SDK's default is only after 0.8 × timeout (24 s) (holes.md H3)."""

HEARTBEAT_THROTTLE_CLOUD = timedelta(seconds=5)
"""The interval at which a heartbeat is sent on at Temporal Cloud, where each that arrives is an action to pay for."""

_DEFAULT_ADDRESS = "localhost:7233"
_CLOUD_ADDRESS = re.compile(r"(.*\.)?(tmprl\.cloud|api\.temporal\.io)(:\d+)?")
"""Addresses of Temporal Cloud: of a namespace, and of a region."""


async def connect_to_temporal(
    home: Home, *, start: bool, say: Say, interceptors: Interceptors = (), for_worker: bool = False
) -> Client:
    """Return a client, with Perdure's plugin, of the external server if one is configured, else of the embedded one.

    start       whether to start the embedded server if it does not run
    say         gets a line where the server is started
    for_worker  whether the client is a worker's, which reports its state more often
    Raises TemporalUnreachable when the server does not run or does not answer within SERVER_ANSWER_S seconds, BadInput
    when the configuration cannot be read, and the errors of ensure_server where that starts one.
    """
    external = external_server_config()
    if external is not None:
        return await _open_client(
            external, interceptors, for_worker, fix="check TEMPORAL_ADDRESS; unset it for the embedded server"
        )
    server = await ensure_server(home, say=say) if start else await find_server(home)
    if server is None:
        raise TemporalUnreachable(
            "Temporal is not running", where=str(home.root), fix="perdure up --detach starts it and a worker"
        )
    embedded = ClientConnectConfig(target_host=server.address, namespace=server.namespace)
    return await _open_client(embedded, interceptors, for_worker, fix="perdure down, then perdure up --detach")


def external_server_config() -> ClientConnectConfig | None:
    """Return the settings of the server that TEMPORAL_* variables or a profile name; None: the embedded one is meant.

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
    return config or None


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


async def _open_client(
    config: ClientConnectConfig, interceptors: Interceptors, for_worker: bool, *, fix: str
) -> Client:
    """Open a connection within SERVER_ANSWER_S seconds and return the client, with Perdure's plugin.

    Raises TemporalUnreachable, with `fix` as the advice, on a timeout and on every error of the SDK.
    """
    address = config.get("target_host") or _DEFAULT_ADDRESS
    try:
        async with asyncio.timeout(SERVER_ANSWER_S):
            return await Client.connect(
                address,
                namespace=config.get("namespace") or NAMESPACE,
                api_key=config.get("api_key"),
                tls=config.get("tls"),
                rpc_metadata=config.get("rpc_metadata") or {},
                runtime=worker_runtime() if for_worker else quiet_runtime(),
                plugins=[perdure_plugin(interceptors=interceptors)],
            )
    except TimeoutError:
        raise TemporalUnreachable(
            f"no Temporal server answered within {SERVER_ANSWER_S:.0f} s", where=address, fix=fix
        ) from None
    except (RPCError, RuntimeError, ValueError) as error:
        raise TemporalUnreachable(
            f"Temporal cannot be reached: {_readable_reason(error)}", where=address, fix=fix
        ) from None


def _readable_reason(error: Exception) -> str:
    """Return the innermost message, at most 200 characters, of an SDK error, whose text nests several Rust errors."""
    text = " ".join(str(error).split())
    inner = re.findall(r'(?:message|error): "([^"]+)"', text)
    return (inner[-1] if inner else text)[:200] or type(error).__name__

"""The one way to a Temporal client: what TEMPORAL_* says, else the embedded server of this home."""

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
from perdure.local.runtimes import quiet, working
from perdure.local.server import ensure_server, find_server
from perdure.models.errors import BadInput, TemporalUnreachable
from perdure.models.limits import SERVER_ANSWER_S
from perdure.plugin import Interceptors, perdure_plugin
from perdure.secrets import environment
from perdure.text import is_text

HEARTBEAT_THROTTLE = timedelta(seconds=1)
"""The SDK passes a heartbeat on only after 0.8 × timeout (24 s) unless told otherwise (holes.md H3)."""

HEARTBEAT_THROTTLE_CLOUD = timedelta(seconds=5)
"""The same at Temporal Cloud, where each heartbeat that arrives is an action to pay for."""

_DEFAULT_ADDRESS = "localhost:7233"
_CLOUD = re.compile(r"(.*\.)?(tmprl\.cloud|api\.temporal\.io)(:\d+)?")
"""Temporal Cloud's addresses: of a namespace, and of a region."""


async def connect(home: Home, *, start: bool, say: Say, interceptors: Interceptors = (), works: bool = False) -> Client:
    """A connected client with Perdure's plugin.

    start   whether to start the embedded server when nothing is configured and it does not run
    works   it is for workers, which then say more often how they are
    Raises TemporalUnreachable within SERVER_ANSWER_S seconds, BadInput for a configuration that cannot be read.
    """
    config = configured()
    if config is not None:
        return await _connect(
            config, interceptors, works, fix="check TEMPORAL_ADDRESS; unset it for the embedded server"
        )
    server = await ensure_server(home, say=say) if start else await find_server(home)
    if server is None:
        raise TemporalUnreachable(
            "Temporal is not running", where=str(home.root), fix="perdure up --detach starts it and a worker"
        )
    embedded = ClientConnectConfig(target_host=server.address, namespace=server.namespace)
    return await _connect(embedded, interceptors, works, fix="perdure down, then perdure up --detach")


def configured() -> ClientConnectConfig | None:
    """The server that TEMPORAL_* variables or a profile name, None when they name none: then it is the embedded one."""
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
    """Return how often an attempt's heartbeats may reach this client's server, and cancellations the attempt."""
    billed = _CLOUD.fullmatch(client.service_client.config.target_host)
    return HEARTBEAT_THROTTLE_CLOUD if billed else HEARTBEAT_THROTTLE


def embedded_environment(env: Mapping[str, str]) -> dict[str, str]:
    """`env` without anything that leads to another Temporal server than the embedded one, profile file included."""
    kept = {name: value for name, value in env.items() if not name.startswith("TEMPORAL_")}
    return kept | {"TEMPORAL_CONFIG_FILE": os.devnull}


async def _connect(config: ClientConnectConfig, interceptors: Interceptors, works: bool, *, fix: str) -> Client:
    address = config.get("target_host") or _DEFAULT_ADDRESS
    try:
        async with asyncio.timeout(SERVER_ANSWER_S):
            return await Client.connect(
                address,
                namespace=config.get("namespace") or NAMESPACE,
                api_key=config.get("api_key"),
                tls=config.get("tls"),
                rpc_metadata=config.get("rpc_metadata") or {},
                runtime=working() if works else quiet(),
                plugins=[perdure_plugin(interceptors=interceptors)],
            )
    except TimeoutError:
        raise TemporalUnreachable(
            f"no Temporal server answered within {SERVER_ANSWER_S:.0f} s", where=address, fix=fix
        ) from None
    except (RPCError, RuntimeError, ValueError) as error:
        raise TemporalUnreachable(f"Temporal cannot be reached: {_reason(error)}", where=address, fix=fix) from None


def _reason(error: Exception) -> str:
    """Return what a person can use of the SDK's words, where layers of Rust errors are written one in another."""
    said = " ".join(str(error).split())
    inner = re.findall(r'(?:message|error): "([^"]+)"', said)
    return (inner[-1] if inner else said)[:200] or type(error).__name__

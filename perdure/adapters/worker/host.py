"""Everything an activity needs on this machine, as one object that `worker.py` makes once and gives to every activity:
home, configuration, keys, leases, signed terms of deliveries, and workspaces made valid. Beside it what a worker does
once: registering search attributes, and tasks in the background."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.adapters.agents.builtin import conversation
from perdure.adapters.agents.builtin.model import Model, parse_seconds
from perdure.adapters.agents.proxied.upstream import Upstream, upstreams_from_environment
from perdure.adapters.forges.select import Forges
from perdure.adapters.git.git_view import update_view
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace, worktree_path
from perdure.adapters.notify.addresses import Listeners
from perdure.adapters.repository.host import load_host_config
from perdure.adapters.repository.ports import lease_ports, write_ports_env
from perdure.adapters.sandbox.base import HostSlots, Sandbox
from perdure.adapters.sandbox.environment import Binds
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.adapters.system.home import Home
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.environments import Environments
from perdure.adapters.worker.inflight import InFlight
from perdure.adapters.worker.journal import Journal, SpendLog
from perdure.adapters.worker.lease import Lease, Leases
from perdure.adapters.worker.origin_record import AcceptedRuns
from perdure.adapters.worker.pace import HasAccount, Pace
from perdure.adapters.worker.sealed_facts import SealedFacts
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.waiting_agents import AGENT_IDLE_S, IDLE_VARIABLE, WaitingAgents
from perdure.adapters.worker.workspace_setup import (
    has_lost_packages,
    has_same_setup,
    is_base_setup_worthwhile,
    read_binds,
    set_up_workspace,
)
from perdure.models.config.host import HostConfig
from perdure.models.config.repository import SandboxGrade
from perdure.models.delivery.request import keyed_hash
from perdure.models.delivery.result import Receipt
from perdure.models.delivery.turn import Contract
from perdure.models.errors import BadInput, ModelRefusesUs, SetupFailed, WorkspaceLost
from perdure.models.ids import MORE_ATTRIBUTES, SEARCH_ATTRIBUTES, TITLE
from perdure.models.limits import TASK_QUEUE


async def register_search_attributes(client: Client) -> frozenset[str]:
    """Register our search attributes at the server where that is allowed, and return the names that workflows may set.

    The set is empty, so that workflows set none, where one of the first release can be neither found nor registered;
    those of later releases are left out one by one. What is not available is logged, not raised. A workflow that sets
    an attribute the server does not know would hang.
    """
    service, namespace = client.operator_service, client.namespace
    try:
        listed = await service.list_search_attributes(ListSearchAttributesRequest(namespace=namespace))
        known_names = set(listed.custom_attributes)
        if missing := SEARCH_ATTRIBUTES.keys() - known_names:
            await _add_attributes(client, missing)
    except RPCError as error:
        log.warning("search attributes are not available, going on without them: %s", error.message)
        return frozenset()
    for name in sorted(MORE_ATTRIBUTES.keys() - known_names):
        try:
            await _add_attributes(client, {name})
        except RPCError as error:
            log.warning("lists show no %s: %s", name, error.message)
            continue
        known_names.add(name)
    return frozenset(SEARCH_ATTRIBUTES) | (known_names & MORE_ATTRIBUTES.keys())


async def _add_attributes(client: Client, names: Iterable[str]) -> None:
    """Register search attributes of these names at the server. Raises RPCError."""
    kinds = {name: _KINDS[_TYPES[name]] for name in names}
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=kinds)
    await client.operator_service.add_search_attributes(request)


_TYPES = {**SEARCH_ATTRIBUTES, **MORE_ATTRIBUTES}

_KINDS: Mapping[str, IndexedValueType.ValueType] = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    "Double": IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
}


log = logging.getLogger(__name__)

PUBLISHER_QUEUE = "PERDURE_PUBLISHER_QUEUE"
ROLE = "PERDURE_WORKER_ROLE"


class Host:
    """This worker's home, configuration, model, forges, listeners, leases and journals.

    upstreams         by wire, the models that agents with a command line of their own may ask
    publisher_queue   of the worker that alone publishes for this home; empty when every worker does
    publishes_only    this worker is that one
    command_slots     for setups and tests, of which a bounded number run at once on this host
    shares_server     the server is not this home's own, so other hosts may work there, too
    local_page        called for the address of this home's page, without a token; empty while none runs
    """

    def __init__(self, home: Home, config: HostConfig, model: Model | None, forges: Forges | None = None) -> None:
        self.home, self.config, self.model = home, config, model
        self.forges = forges or Forges()
        self.upstreams: dict[str, Upstream] = {}
        self.listeners = Listeners.from_settings(config.notify, {})
        self.publisher_queue, self.publishes_only = "", False
        self.inflight, self.accepted_runs = InFlight(home), AcceptedRuns(home)
        self.leases, self.waiting_agents = Leases(home), WaitingAgents()
        self.command_slots = HostSlots.from_limits(home.root / "room", config.commands)
        self.search_attributes = frozenset[str]()
        self.shares_server = False
        self.local_page: Callable[[], str] = str
        self._paces: dict[str, Pace] = {}

    @classmethod
    def from_environment(
        cls, home: Home, environ: MutableMapping[str, str], local_page: Callable[[], str] = str
    ) -> Host:
        """Make the host from its environment, and remove keys and tokens from `environ`: from here on no child process
        can inherit them. Makes the home accessible to its owner alone, and in it this worker's lock and directory for
        notes. Raises BadInput for a setting that cannot be.

        local_page  called for the address of this home's page; empty while none runs
        """
        home.make_private()
        config = load_host_config(environ)
        keys = dict(environ)  # the built-in agent and others have the same key
        upstreams_by_wire = upstreams_from_environment(environ)
        host = cls(home, config, Model.from_environment(keys), Forges.from_environment(environ))
        host.upstreams, host.local_page = upstreams_by_wire, local_page
        host.waiting_agents = WaitingAgents(parse_seconds(environ.get(IDLE_VARIABLE), IDLE_VARIABLE, AGENT_IDLE_S))
        host.listeners = Listeners.from_environment(config.notify, environ)
        host.publisher_queue, host.publishes_only = _read_publisher(home, environ)
        return host

    async def close(self) -> None:
        """Close what the worker holds, in an orderly end: delete its notes of activities in flight, stop waiting
        agents, close the model's client."""
        self.inflight.close()
        await self.waiting_agents.close()
        if self.model is not None:
            await self.model.aclose()

    def journal(self, delivery: str) -> Journal:
        """Return the journal of a delivery's attempts on this host."""
        return Journal(self.home.workspace(delivery), self.inflight.is_alive)

    def spend_log(self, delivery: str) -> SpendLog:
        """Return the log of what a delivery has paid."""
        return SpendLog(self.home.workspace(delivery))

    def facts(self, delivery: str) -> SealedFacts:
        """Return what was found out here about a delivery's work, sealed."""
        return SealedFacts(self.home, delivery)

    def receipt(self, delivery: str) -> Receipt:
        """Return what the delivery has survived so far: dead workers, redone turns, replies paid twice or cut off."""
        paid_twice, cut_off = self.spend_log(delivery).count_repeats()
        return (
            self.journal(delivery)
            .make_receipt()
            .model_copy(update={"replies_paid_twice": paid_twice, "replies_cut": cut_off})
        )

    def include_tasks(self, delivery: str, tasks: Sequence[str]) -> list[SpendLog]:
        """Copy what these deliveries of a plan's tasks paid, and the deaths they survived, into the delivery's own
        spend log and journal, where each counts once, however often this is called. Returns their spend logs."""
        logs = [self.spend_log(task) for task in tasks]
        for task, log in zip(tasks, logs, strict=True):
            self.spend_log(delivery).include_log(log)
            self.journal(delivery).include_journal(self.journal(task))
        return logs

    def require_model(self) -> Model:
        """Return the built-in agent's model. Raises ModelRefusesUs where this worker has no key for it."""
        if self.model is None:
            raise ModelRefusesUs(
                "this worker has no key for the model's API",
                where="ANTHROPIC_API_KEY",
                fix="set it in the worker's environment and restart the worker; or rehearse: perdure rehearse FILE",
            )
        return self.model

    def pace_of(self, model: HasAccount) -> Pace:
        """Return the pace of all requests with a model's key on this host, the same each time."""
        account = model.account
        if account not in self._paces:
            self._paces[account] = Pace.for_model(self.home, model, self.config.model.at_once)
        return self._paces[account]

    def redact_blocks(self, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return JSON blocks such as tool results without this worker's own secrets, whatever printed them."""
        cleaned: list[dict[str, Any]] = _map_texts(blocks, lambda text: conversation.redact_secrets(text, self.secrets))
        return cleaned

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values of this worker that are kept out of everything that is stored or shown."""
        ours = self.model.secrets if self.model else ()
        theirs = [secret for upstream in self.upstreams.values() for secret in upstream.secrets]
        return (*ours, *theirs, *self.forges.secrets, *self.listeners.secrets)

    def sandbox(self, delivery: str, grade: str) -> Sandbox:
        """Return the sandbox of a delivery at this grade; it shows of the machine what was computed and stored once,
        after setup."""
        binds: Binds = read_binds(self.home.workspace(delivery))
        return sandbox_for(SandboxGrade(grade), self.home, binds, ResourceCaps.from_limits(self.config.commands))

    @asynccontextmanager
    async def lease_workspace(self, delivery: str, *, spares: bool = False) -> AsyncIterator[tuple[Workspace, Lease]]:
        """Hold the lease of an existing workspace while the block runs, and yield both; its holder is the only writer.

        Where it cannot be proved that the previous writer has ended, a new worktree is made and leased. With `spares`
        an agent process that waits in the workspace for its next turn is left running, because the caller goes on with
        it; else it is ended. Raises WorkspaceLost when this host has no record of the workspace, Superseded when a
        newer attempt came meanwhile.
        """
        workspace = await in_thread(Workspace.open, self.home, delivery)
        generation = 0
        async with AsyncExitStack() as exit_stack:
            lease = await exit_stack.enter_async_context(
                self.leases.acquire(delivery, workspace.path.name, spares=spares)
            )
            while not lease.proved:
                await exit_stack.aclose()
                record = await in_thread(workspace.record)
                log.warning("%s may still be written to: going on in another directory", workspace.path)
                generation = max(generation, record.generation) + 1
                place = worktree_path(self.home, delivery, generation)
                lease = await exit_stack.enter_async_context(self.leases.acquire(delivery, place.name))
                if lease.proved:  # else somebody makes this one, too
                    workspace = await in_thread(
                        Workspace.create,
                        self.home,
                        workspace.vault,
                        delivery,
                        record.base_sha,
                        generation=generation,
                    )
            yield workspace, lease

    @asynccontextmanager
    async def open_session(
        self, delivery: str, contract_hash: str, *, spares: bool = False
    ) -> AsyncIterator[WorkspaceSession]:
        """Lease the delivery's workspace and yield it valid and set up, while the block runs; the worktree is rebuilt
        when disk, record and git disagree about it.

        contract_hash  of the delivery's fixed terms, an artifact in the vault
        spares         leave an agent process running that waits in the workspace for the caller's turn

        Raises WorkspaceLost when this machine has no record of the workspace, or the terms are missing or not signed by
        this home; Superseded when a newer attempt came meanwhile; SetupFailed, SandboxUnavailable, WorkCutOff, NoPorts.
        """
        async with self.lease_workspace(delivery, spares=spares) as (workspace, lease):
            contract = await in_thread(self.load_contract, workspace.vault, delivery, contract_hash)
            yield await self.prepare_session(workspace, lease, contract)

    async def prepare_session(self, workspace: Workspace, lease: Lease, contract: Contract) -> WorkspaceSession:
        """Make a leased workspace valid, run its setup where that is missing, lease ports and write them to
        `.ports.env` where the delivery needs some, update what commands see of git, and return the session. Raises
        SetupFailed, SandboxUnavailable, WorkCutOff, NoPorts, and Superseded when a newer attempt came meanwhile."""
        workspace = await self.ensure_valid(workspace, lease, contract)
        ports = await in_thread(self._lease_ports, workspace, contract)
        return WorkspaceSession(
            workspace=workspace,
            lease=lease,
            contract=contract,
            sandbox=await in_thread(self.sandbox, contract.delivery, contract.grade),
            git=await in_thread(update_view, workspace, contract.base, contract.base_sha, contract.branch),
            env=ports,
            directory=self.home.workspace(contract.delivery),
            command_slots=self.command_slots,
        )

    def _lease_ports(self, workspace: Workspace, contract: Contract) -> dict[str, str]:
        """Lease the delivery's pair of ports, write it to `.ports.env`, and return it as variables; empty where the
        delivery needs no port. Raises NoPorts."""
        if not (contract.config.ports.need or contract.config.app.start):
            return {}
        pair = lease_ports(self.home, self.config.ports, workspace.delivery)
        write_ports_env(workspace.path, pair)
        return pair.environment_variables()

    async def ensure_valid(self, workspace: Workspace, lease: Lease, contract: Contract) -> Workspace:
        """Compare record, disk and git; rebuild the worktree where they disagree, where it was made for another commit,
        or where setup's packages were removed; run setup where it was not run since. A workspace that had ended is
        marked as active again. Returns the workspace, a new one if rebuilt.

        Raises SetupFailed, SandboxUnavailable, WorkCutOff, and Superseded when a newer attempt came meanwhile.
        """

        def find_problems() -> list[str]:
            lost_packages = ["the packages of its setup are gone"] if has_lost_packages(self.home, contract) else []
            return [*workspace.find_problems(), *lost_packages]

        problems = await in_thread(find_problems)
        record, base = await in_thread(workspace.record), contract.head or contract.base_sha
        if record.ended_at is not None:  # it was rewound, in the Web UI, after its end: not for `sweep` any more
            await in_thread(workspace.mark_active)
        if record.base_sha != base:  # it was rewound over a rebase
            problems.append(f"it was made for {record.base_sha[:12]}, not for {base[:12]}")
        if problems:
            log.warning("%s is rebuilt: %s", workspace.path, "; ".join(problems))
            workspace = await in_thread(
                Workspace.create,
                self.home,
                workspace.vault,
                record.delivery,
                base,
                generation=record.generation,
            )
        if problems or not record.setup_done:
            if await in_thread(is_base_setup_worthwhile, self.home, workspace, lease, contract, self._environments):
                workspace = await self._set_up_base_first(workspace, lease, contract)
            await self._set_up(workspace, lease, contract)
        return workspace

    async def _set_up_base_first(self, workspace: Workspace, lease: Lease, contract: Contract) -> Workspace:
        """Run setup on the base of a branch of strangers, so that what it makes is kept, and return the worktree made
        anew for the branch. Where setup fails on the base, the branch's own decides. Raises what `_set_up` raises but
        SetupFailed."""
        terms = {"existing": False, "head": contract.base_sha, "branch": contract.base}
        home, vault, record = self.home, workspace.vault, await in_thread(workspace.record)
        place = home, vault, record.delivery
        base_tree = await in_thread(Workspace.create, *place, contract.base_sha, generation=record.generation)
        with contextlib.suppress(SetupFailed):
            await self._set_up(base_tree, lease, contract.model_copy(update=terms))
        lease.check()
        return await in_thread(Workspace.create, *place, record.base_sha, generation=record.generation)

    async def _set_up(self, workspace: Workspace, lease: Lease, contract: Contract) -> None:
        """Set up a workspace with this host's limits. Raises what `set_up_workspace` raises."""
        grade, caps = SandboxGrade(contract.grade), ResourceCaps.from_limits(self.config.commands)
        await set_up_workspace(
            self.home, workspace, lease, contract, grade, os.environ, self._environments, caps, self.command_slots
        )

    def has_same_setup(self, session: WorkspaceSession, commit: str) -> bool:
        """Return whether setup on another commit would make what it made in this session's workspace: True without
        setup commands, False where the cache of environments does not know."""
        environments = self._environments
        return has_same_setup(self.home, session.workspace, session.lease, session.contract, environments, commit)

    @property
    def _environments(self) -> Environments:
        gigabytes = self.config.environments.gigabytes
        return Environments(self.home, None if gigabytes is None else int(gigabytes * 1e9))

    def load_contract(self, vault: Vault, delivery: str, sha256: str) -> Contract:
        """Load the fixed terms that the delivery runs under.

        Raises WorkspaceLost when the artifact is missing or damaged, or was not signed by this home: a stranger's plan
        is an artifact, too, and its hash can be sent as `contract`.
        """
        signed = vault.get_artifact(delivery, sha256)
        signature, _, terms = signed.partition(b"\n")
        if not hmac.compare_digest(signature, self._sign(delivery, terms)):
            raise WorkspaceLost("the terms of this delivery were not made by this PERDURE_HOME", where=sha256[:12])
        return Contract.model_validate_json(terms)

    def store_contract(self, vault: Vault, contract: Contract) -> str:
        """Store the fixed terms in the vault, signed with this home's key, and return the artifact's hash."""
        terms = contract.model_dump_json().encode()
        return vault.put_artifact(contract.delivery, self._sign(contract.delivery, terms) + b"\n" + terms)

    def _sign(self, delivery: str, terms: bytes) -> bytes:
        """Return the signature of a delivery's fixed terms by this home's key."""
        return keyed_hash(self.home.key(), "contract", delivery.encode() + b"\0" + terms).encode()

    def page_address(self) -> str:
        """Return the address at which people see deliveries, without a token; empty where there is none."""
        return self.config.page.address or self.local_page()

    @property
    def extra_search_attributes(self) -> tuple[str, ...]:
        """Return the search attributes of later releases that the server knows."""
        return tuple(sorted(self.search_attributes & MORE_ATTRIBUTES.keys()))

    async def load_search_attributes(self, client: Client) -> None:
        """Ask the server which of our search attributes it knows, register the missing ones where allowed, and remember
        the names; not that of titles where a codec encrypts requests, which a title repeats."""
        names = await register_search_attributes(client)
        self.search_attributes = names if client.data_converter.payload_codec is None else names - {TITLE}


def _read_publisher(home: Home, environ: Mapping[str, str]) -> tuple[str, bool]:
    """Read from the environment the queue of the worker that alone publishes, with this home's name in it (empty: every
    worker publishes), and whether this worker is the publisher. Raises BadInput for an unknown role, a publisher
    without a queue, and a name that cannot be a queue's or is that of all workers."""
    name, role = environ.get(PUBLISHER_QUEUE, "").strip(), environ.get(ROLE, "").strip() or "all"
    if role not in ("all", "publisher"):
        raise BadInput(f"there is no role {role!r}", where=ROLE, fix="set it to publisher, or unset it")
    if role == "publisher" and not name:
        raise BadInput("a publisher needs a queue of its own", where=PUBLISHER_QUEUE, fix="set it for all workers here")
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise BadInput(f"{name!r} cannot be a queue's name", where=PUBLISHER_QUEUE, fix="use letters, digits, . _ -")
    if name == TASK_QUEUE:
        raise BadInput(f"{name!r} is the queue of all workers", where=PUBLISHER_QUEUE, fix="choose another name")
    return (home.queue(name) if name else ""), role == "publisher"


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value in which every text is changed; keys of objects stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _map_texts(item, change) for key, item in value.items()}
    return value


@asynccontextmanager
async def run_in_background(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the coroutines as tasks while the block runs, then cancel and await them.

    Raises the first error of a coroutine that was not a cancellation, once the block has ended; the other coroutines go
    on until then.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for error in results:
        if error is not None and not isinstance(error, asyncio.CancelledError):
            raise error

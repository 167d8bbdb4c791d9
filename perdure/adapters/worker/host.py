"""Everything an activity needs on this host: one object, made once a worker."""

from __future__ import annotations

import hmac
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from temporalio.client import Client

from perdure.adapters.agents.builtin import conversation
from perdure.adapters.agents.builtin.model import Model, positive
from perdure.adapters.agents.proxied.upstream import Upstream, upstreams
from perdure.adapters.forges.select import Forges
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.view import view
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.notify.addresses import Listeners
from perdure.adapters.repository.host import load_host_config
from perdure.adapters.repository.ports import lease_ports, write_ports_env
from perdure.adapters.sandbox.base import Sandbox
from perdure.adapters.sandbox.room import Room
from perdure.adapters.sandbox.select import sandbox_for
from perdure.adapters.sandbox.toolchain import Binds
from perdure.adapters.sandbox.usage import Caps
from perdure.adapters.system.home import Home
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.environments import Environments
from perdure.adapters.worker.inflight import InFlight
from perdure.adapters.worker.journal import Journal
from perdure.adapters.worker.lease import Lease, Leases
from perdure.adapters.worker.live import AGENT_IDLE_S, IDLE, WaitingAgents
from perdure.adapters.worker.pace import Pace
from perdure.adapters.worker.search_attributes import registered
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.setting_up import packages_gone, read_binds, set_up, sets_up_alike
from perdure.adapters.worker.spend import SpendLog
from perdure.models.config import SandboxGrade
from perdure.models.contract import Contract
from perdure.models.errors import BadInput, ModelRefusesUs, WorkspaceLost
from perdure.models.host_config import HostConfig
from perdure.models.limits import TASK_QUEUE
from perdure.models.proof import seal
from perdure.models.result import Receipt
from perdure.models.visibility import MORE_ATTRIBUTES

log = logging.getLogger(__name__)

PUBLISHER_QUEUE = "PERDURE_PUBLISHER_QUEUE"
ROLE = "PERDURE_WORKER_ROLE"


class Host:
    """This worker's home, configuration, model, forges, listeners, leases and journals.

    `upstreams`: by wire, the models that agents with a command line of their own may ask.
    `publisher`: the queue of the worker that alone publishes for this home; empty when every worker does.
    `publishes_only`: this worker is the one.
    `served`: where the page of this home is, without a token; empty while none runs.
    """

    def __init__(self, home: Home, config: HostConfig, model: Model | None, forges: Forges | None = None) -> None:
        self.home, self.config, self.model = home, config, model
        self.forges = forges or Forges()
        self.upstreams: dict[str, Upstream] = {}
        self.listeners = Listeners.of(config.notify, {})
        self.publisher, self.publishes_only = "", False
        self.inflight = InFlight(home)
        self.leases, self.waiting = Leases(home), WaitingAgents()
        self.room = Room.of(home.root / "room", config.commands)
        self.attributes = frozenset[str]()
        self.served: Callable[[], str] = str
        self._pace: Pace | None = None

    @classmethod
    def open(cls, home: Home, environ: MutableMapping[str, str], served: Callable[[], str] = str) -> Host:
        """Takes keys and tokens out of the environment: from here on no child process can inherit them."""
        home.make_private()
        config = load_host_config(environ)
        known = dict(environ)  # the built-in agent and others have the same key
        found = upstreams(environ)
        host = cls(home, config, Model.from_environment(known), Forges.from_environment(environ))
        host.upstreams, host.served = found, served
        host.waiting = WaitingAgents(positive(environ.get(IDLE), IDLE, AGENT_IDLE_S))
        host.listeners = Listeners.from_environment(config.notify, environ)
        host.publisher, host.publishes_only = _publishing(home, environ)
        return host

    async def close(self) -> None:
        """An orderly end of the worker."""
        self.inflight.close()
        await self.waiting.close()
        if self.model is not None:
            await self.model.aclose()

    def journal(self, delivery: str) -> Journal:
        return Journal(self.home.workspace(delivery), self.inflight.alive)

    def spend(self, delivery: str) -> SpendLog:
        return SpendLog(self.home.workspace(delivery))

    def receipt(self, delivery: str) -> Receipt:
        """Return what the delivery has survived so far."""
        twice, cut = self.spend(delivery).repeats()
        return self.journal(delivery).receipt().model_copy(update={"replies_paid_twice": twice, "replies_cut": cut})

    def take_in(self, delivery: str, tasks: Sequence[str]) -> list[SpendLog]:
        """Count what these deliveries of its plan's tasks paid, and the deaths they survived, as the delivery's own;
        once, however often. Returns their spend logs."""
        logs = [self.spend(task) for task in tasks]
        for task, log in zip(tasks, logs, strict=True):
            self.spend(delivery).take_in(log)
            self.journal(delivery).take_in(self.journal(task))
        return logs

    def model_or_refuse(self) -> Model:
        if self.model is None:
            raise ModelRefusesUs(
                "this worker has no key for the model's API",
                where="ANTHROPIC_API_KEY",
                fix="set it in the worker's environment and restart the worker; or rehearse: perdure rehearse FILE",
            )
        return self.model

    def pace(self) -> Pace:
        """The pace of all requests with the model's key on this host."""
        self._pace = self._pace or Pace.of(self.home, self.model_or_refuse())
        return self._pace

    def redacted(self, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Tool results without this worker's own secrets, whatever printed them."""
        cleaned: list[dict[str, Any]] = _walk(blocks, lambda text: conversation.redact(text, self.secrets))
        return cleaned

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values of this worker to keep out of everything that is stored or shown."""
        ours = self.model.secrets if self.model else ()
        theirs = [secret for upstream in self.upstreams.values() for secret in upstream.secrets]
        return (*ours, *theirs, *self.forges.secrets, *self.listeners.secrets)

    def sandbox(self, delivery: str, grade: str) -> Sandbox:
        """The sandbox of a delivery, with the binds that were computed once after setup."""
        binds: Binds = read_binds(self.home.workspace(delivery))
        return sandbox_for(SandboxGrade(grade), self.home, binds, Caps.of(self.config.commands))

    @asynccontextmanager
    async def lease(self, delivery: str, *, spares: bool = False) -> AsyncIterator[tuple[Workspace, Lease]]:
        """Be the only writer of an existing workspace; in a new directory when the old one cannot be shown to be free.

        `spares`: the agent that waits there is the caller's; any other one is ended.
        Raises WorkspaceLost when this host has no record of it, Superseded when a newer attempt came meanwhile.
        """
        workspace = await in_thread(Workspace.open, self.home, delivery)
        async with AsyncExitStack() as held:
            lease = await held.enter_async_context(self.leases.take(delivery, workspace.path.name, spares=spares))
            while not lease.proved:
                await held.aclose()
                record = await in_thread(workspace.record)
                log.warning("%s may still be written to: going on in another directory", workspace.path)
                workspace = await in_thread(
                    Workspace.create,
                    self.home,
                    workspace.vault,
                    delivery,
                    record.base_sha,
                    generation=record.generation + 1,
                )
                lease = await held.enter_async_context(self.leases.take(delivery, workspace.path.name))
            yield workspace, lease

    @asynccontextmanager
    async def session(self, delivery: str, terms: str, *, spares: bool = False) -> AsyncIterator[WorkspaceSession]:
        """The delivery's workspace, valid, set up and leased; rebuilt when disk, record and git disagree about it.
        `spares` as in `lease`."""
        async with self.lease(delivery, spares=spares) as (workspace, lease):
            contract = await in_thread(self.contract, workspace.vault, delivery, terms)
            yield await self.opened(workspace, lease, contract)

    async def opened(self, workspace: Workspace, lease: Lease, contract: Contract) -> WorkspaceSession:
        """A leased workspace, made valid and set up under these terms."""
        workspace = await self.make_valid(workspace, lease, contract)
        ports = await in_thread(self._ports, workspace, contract)
        return WorkspaceSession(
            workspace=workspace,
            lease=lease,
            contract=contract,
            sandbox=await in_thread(self.sandbox, contract.delivery, contract.grade),
            git=await in_thread(view, workspace, contract.base, contract.base_sha, contract.branch),
            env=ports,
            directory=self.home.workspace(contract.delivery),
            room=self.room,
        )

    def _ports(self, workspace: Workspace, contract: Contract) -> dict[str, str]:
        """The leased pair as variables, written to `.ports.env` too; nothing where nobody needs one. Raises NoPorts."""
        if not (contract.config.ports.need or contract.config.app.start):
            return {}
        pair = lease_ports(self.home, self.config.ports, workspace.delivery)
        write_ports_env(workspace.path, pair)
        return pair.environment()

    async def make_valid(self, workspace: Workspace, lease: Lease, contract: Contract) -> Workspace:
        """Validate three ways; rebuild what is not valid and run setup where it was not run."""

        def wrong() -> list[str]:
            gone = ["the packages of its setup are gone"] if packages_gone(self.home, contract) else []
            return [*workspace.validate(), *gone]

        problems = await in_thread(wrong)
        record, base = await in_thread(workspace.record), contract.head or contract.base_sha
        if record.ended_at is not None:  # it was rewound, in the Web UI, after its end: not for `sweep` any more
            await in_thread(workspace.begin_again)
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
            grade, caps = SandboxGrade(contract.grade), Caps.of(self.config.commands)
            await set_up(self.home, workspace, lease, contract, grade, os.environ, self._environments, caps, self.room)
        return workspace

    def sets_up_alike(self, session: WorkspaceSession, commit: str) -> bool:
        """True where setup on another commit would make what it made here."""
        kept = self._environments
        return sets_up_alike(self.home, session.workspace, session.lease, session.contract, kept, commit)

    @property
    def _environments(self) -> Environments:
        return Environments(self.home, int(self.config.environments.gigabytes * 1e9))

    def contract(self, vault: Vault, delivery: str, sha256: str) -> Contract:
        """The terms the delivery runs under. Raises WorkspaceLost when the artifact is missing or damaged, or is none
        that this home made: a stranger's plan is an artifact, too, and its hash can be sent as `contract`."""
        sealed = vault.get_artifact(delivery, sha256)
        mark, _, said = sealed.partition(b"\n")
        if not hmac.compare_digest(mark, self._seal(delivery, said)):
            raise WorkspaceLost("the terms of this delivery were not made by this PERDURE_HOME", where=sha256[:12])
        return Contract.model_validate_json(said)

    def keep_contract(self, vault: Vault, contract: Contract) -> str:
        """Store the terms for `contract`; returns the artifact's hash."""
        said = contract.model_dump_json().encode()
        return vault.put_artifact(contract.delivery, self._seal(contract.delivery, said) + b"\n" + said)

    def _seal(self, delivery: str, said: bytes) -> bytes:
        return seal(self.home.key(), "contract", delivery.encode() + b"\0" + said).encode()

    def page(self) -> str:
        """The address at which people see deliveries, without a token; empty where there is none."""
        return self.config.page.address or self.served()

    @property
    def shows(self) -> tuple[str, ...]:
        """The search attributes of later releases that the server knows."""
        return tuple(sorted(self.attributes & MORE_ATTRIBUTES.keys()))

    async def check_search_attributes(self, client: Client) -> None:
        """See which of our search attributes the server knows."""
        self.attributes = await registered(client)


def _publishing(home: Home, environ: Mapping[str, str]) -> tuple[str, bool]:
    """The publisher's queue and whether we are it. BadInput for a role or a queue that cannot be."""
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


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_walk(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _walk(item, change) for key, item in value.items()}
    return value

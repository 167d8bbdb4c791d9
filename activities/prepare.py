"""Prepare: repository, configuration, workspace, setup and preflight, all before a cent is spent.

Effect: a workspace on this host and the delivery's Contract. Looks first: a valid workspace is reused, setup is not run
twice. Key: the delivery.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from temporalio import activity

from activities.forks import as_sibling, forked_words
from activities.run_tests import Base, test_base
from activities.terms import CONFIG_FILE, Terms, of_task
from perdure.adapters.agents.chosen import proxied
from perdure.adapters.agents.efforts import harder
from perdure.adapters.checks.experiment.survey import survey
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.first import FIRST_COMMIT
from perdure.adapters.git.retention import note_branches
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace, worktree
from perdure.adapters.repository.config import Effective, with_detected
from perdure.adapters.repository.detect import detect
from perdure.adapters.repository.host import labels_of, shared_by
from perdure.adapters.repository.notes import read_notes
from perdure.adapters.repository.terms import title_of, tokens_of
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.home import Home
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.setting_up import SetUp, read_set_up
from perdure.adapters.worker.turn.adopt import turn_of
from perdure.models.amounts import seconds
from perdure.models.config import Limits
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.errors import ForgeUnavailable, InvalidRequest, WorkspaceLost
from perdure.models.phases import Phase, Step
from perdure.models.request import DeliveryRequest
from perdure.models.result import TestsStatus
from perdure.models.rules.attempts import of_attempt, several
from perdure.models.rules.gates import decided_by_people
from perdure.models.steps import AGENTIC
from perdure.models.work import Asking, Prepared, PrepareInput, TestVerdict
from perdure.text import span

UNKNOWN_HOST_PATIENCE = timedelta(minutes=10)
"""The time the first look at a remote waits for a host's name to be known: as long as a network is away after a laptop
was opened. A misspelt one is no outage, and nothing is done or paid for yet."""

T = TypeVar("T")


class Preparation:
    def __init__(self, host: Host) -> None:
        self._host, self._terms = host, Terms(host)

    @activity.defn(name=Step.PREPARE)
    async def prepare(self, work: PrepareInput) -> Prepared:
        """Raises InvalidRequest, BadInput, SetupFailed, SandboxUnavailable, NoPorts, ForgeUnavailable."""
        journal, notifies = self._host.journal(work.delivery), bool(self._host.listeners.addresses)
        if work.previous is not None:
            journal.asks(work.previous.asking.model_copy(update={"notifies": notifies}))
            return await self._again(work, work.previous)
        journal.asks(Asking(asks=work.request.questions is not False, notifies=notifies))
        now_doing(doing="fetching")
        within = work.request.landing.within if work.request.landing is not None else None
        vault, contract, settings = await self._read(work)
        expiry = settings.config.gates.expire
        expiry_s = seconds(expiry) if expiry else 0.0
        journal.asks(Asking(asks=settings.config.delivery.questions, expiry_s=expiry_s, notifies=notifies))
        contract = await self.placed(vault, contract, settings)
        looks_wrong = "" if within is not None else await in_thread(_surveyed, vault, contract)
        own = () if contract.existing else (contract.branch, *contract.branches.values())
        await in_thread(note_branches, self._host.home, contract.delivery, own)
        terms = await in_thread(self._host.keep_contract, vault, contract)
        plan = work.request.plan.encode() if work.request.plan else b""
        if within is not None:
            plan = await in_thread(vault.get_artifact, within.delivery, within.plan)
        artifact = await in_thread(vault.put_artifact, work.delivery, plan) if plan else ""
        crash_point(CrashPoint.DURING_PREPARE)
        async with self._host.session(work.delivery, terms) as session:
            first = await in_thread(_first_checkpoint, session)
            now_doing(doing="testing the base")
            base = await test_base(session, CONFIG_FILE) if contract.config.test and within is None else Base()
            await in_thread(session.restore, first)
            title = await in_thread(title_of, vault, contract)
            done = await in_thread(read_set_up, session.directory)
        prepared = self._prepared(work.request, contract, terms, artifact, first, base, title, done)
        told = " · ".join(part for part in (prepared.summary, looks_wrong) if part)
        told = f"task {within.task} of the plan, on {contract.base_sha[:7]}" if within is not None else told
        return prepared.model_copy(update={"summary": told, **of_task(contract)})

    async def _again(self, work: PrepareInput, previous: Prepared) -> Prepared:
        """A retried delivery: the same terms, the workspace valid and at the checkpoint where it goes on."""
        if (forked := work.request.forked) is not None:
            previous = await as_sibling(
                self._host, work, forked, previous, lambda vault, terms: self._placed(vault, terms, lambda tree: tree)
            )
        asked_for = work.checkpoint or previous.checkpoint
        async with self._host.session(work.delivery, previous.contract) as session:
            await in_thread(session.workspace.begin_again)
            checkpoint = await in_thread(_newest_whole, session.vault, asked_for, previous.checkpoint)
            await in_thread(session.restore, checkpoint)
            at = await in_thread(turn_of, session.vault, checkpoint)
            found_here = self._found_here(session.contract, work.request)
        damaged = checkpoint != asked_for
        asked, most = work.request.budget_usd, self._host.config.limits.budget_usd
        now = {
            **found_here,
            "budget_usd": min(asked, most) if asked is not None else previous.budget_usd,
            "summary": forked_words(forked) if forked else f"goes on from its last {'whole ' * damaged}checkpoint",
            "budget_tokens": tokens_of(work.request.tokens or previous.budget_tokens, self._host.config.limits.tokens),
            **decided_by_people(session.contract.config, previous.phases, work.request),
            "fallback": checkpoint if damaged else "",
            "at": at if damaged else None,
            **of_task(session.contract),
            **of_attempt(forked),
        }
        return previous.model_copy(update=now)

    async def _read(self, work: PrepareInput) -> tuple[Vault, Contract, Effective]:
        """The terms. A remote that is away is waited for; a host that nobody has heard of only for a while."""
        try:
            return await in_thread(self._terms.read, work.delivery, work.request)
        except ForgeUnavailable as error:
            info = activity.info()
            waited = info.current_attempt_scheduled_time - info.scheduled_time  # by one clock, the server's
            if error.unknown_host and waited > UNKNOWN_HOST_PATIENCE:
                raise InvalidRequest(error.what, where=error.where, fix=error.fix) from error
            raise

    async def placed(self, vault: Vault, contract: Contract, settings: Effective) -> Contract:
        """The terms, complete, with a worktree."""
        return await self._placed(vault, contract, lambda tree: complete(contract, settings, tree))

    async def _placed(self, vault: Vault, contract: Contract, then: Callable[[Path], T]) -> T:
        """A worktree where nobody else can be writing, and what is to be made of it then: a worker that sleeps in the
        middle of this keeps its directory, and the next one makes another."""
        home, delivery = self._host.home, contract.delivery
        generation = await in_thread(_generation, home, delivery)
        while True:
            async with self._host.leases.take(delivery, worktree(home, delivery, generation).name) as lease:
                if lease.proved:
                    workspace = await in_thread(self._workspace, vault, contract, generation)
                    lease.check()
                    return await in_thread(then, workspace.path)
            generation += 1

    def _workspace(self, vault: Vault, contract: Contract, generation: int) -> Workspace:
        """A valid one is reused if it was made for the same commit; the base may have moved since a failed attempt."""
        home, delivery, head = self._host.home, contract.delivery, contract.head
        try:
            record = Workspace.open(home, delivery).record()
        except WorkspaceLost:
            return Workspace.create(home, vault, delivery, head, generation=generation)
        if record.base_sha != head or record.vault != str(vault.path):
            return Workspace.create(home, vault, delivery, head, generation=generation)
        workspace, _ = Workspace.open_or_rebuild(home, vault, delivery, head, generation=generation)
        checkpoints.restore_base(workspace)  # what it says of its tests and notes is the commit's word, not the disk's
        return workspace

    def _found_here(self, contract: Contract, request: DeliveryRequest) -> dict[str, Any]:
        """The fields of Prepared that this host, its release and the settings say, of a retried delivery anew."""
        config = contract.config
        return {
            "queue": self._host.home.queue(),
            "attributes": bool(self._host.attributes),
            "shows": self._host.shows,
            "page": self._host.page(),
            "labels": labels_of(contract, request),
            "hosted": self._terms.hosted(contract),
            "publisher": self._host.publisher,
            "inspects": True,
            "comments_at_gates": True,
            "notifies": bool(self._host.listeners.addresses),
            "treasury": shared_by(self._host.config, contract, request),
            "document": config.delivery.document,
            "app": bool(config.app.start),
            "efforts": harder(config.steps),
            "proxied": proxied(config),
        }

    def _prepared(
        self,
        request: DeliveryRequest,
        contract: Contract,
        terms: str,
        plan: str,
        checkpoint: str,
        base: Base,
        title: str,
        done: SetUp,
    ) -> Prepared:
        config, baseline, place = contract.config, base.verdict, request.landing
        return Prepared(
            **self._found_here(contract, request),
            base=contract.base,
            base_sha=contract.base_sha,
            head=contract.head,
            branch=contract.branch,
            branches=contract.branches,
            checkpoint=checkpoint,
            contract=terms,
            phases=tuple(Phase(phase) for phase in config.delivery.phases),
            plan=plan,
            test_fixes=config.limits.test_fixes if request.fix else 0,
            review_fixes=config.limits.review_fixes if request.fix else 0,
            turns_per_step=config.limits.turns_per_step,
            time_s=seconds(config.limits.time),
            budget_usd=config.limits.budget_usd,
            on_failure=config.delivery.on_failure,
            allow_untested=config.ship.allow_untested,
            draft=config.ship.draft,
            has_tests=bool(config.test),
            models={str(step): getattr(config.steps, step).model for step in AGENTIC},
            issue=contract.issue.number if contract.issue else 0,
            title=title,
            baseline=base.artifact,
            base_red=baseline is not None and baseline.status is TestsStatus.RED,
            budget_tokens=config.limits.tokens or 0,
            **decided_by_people(config, config.delivery.phases, request),
            landing=place.branch if place is not None and not (place.decompose or place.ships) else "",
            specialists=config.delivery.specialists,
            **several(contract),
            limited=_limited(request, config.limits),
            summary=_summary(contract, done, baseline, base.known),
        )


def _limited(request: DeliveryRequest, limits: Limits) -> bool:
    """It asks for room among the repository's deliveries. A task of another delivery has that one's."""
    if request.landing is not None and request.landing.within is not None:
        return False
    return limits.deliveries is not None or limits.open_pull_requests is not None


def _newest_whole(vault: Vault, checkpoint: str, first: str) -> str:
    """The checkpoint, or the newest one before it below which nothing is missing (holes.md H13).

    `first`, prepare's own, is where to begin when not even the way to it can be read.
    """
    whole = vault.newest_whole(checkpoint) or vault.newest_whole(first)
    if whole is None:
        raise WorkspaceLost(f"checkpoint {checkpoint[:12]} and all before it are damaged", where=str(vault.path))
    return whole


def _generation(home: Home, delivery: str) -> int:
    """Of the worktree that the record tells of."""
    try:
        return Workspace.open(home, delivery).record().generation
    except WorkspaceLost:
        return 0


def complete(contract: Contract, settings: Effective, tree: Path) -> Contract:
    """The terms with what the repository's own files say: commands nobody wrote down, and notes for agents."""
    settings = with_detected(settings, detect(tree))
    notes = read_notes(tree, settings.config.delivery.notes)
    return contract.model_copy(update={"config": settings.config, "origins": settings.origins, "notes": notes})


def _surveyed(vault: Vault, contract: Contract) -> str:
    """A line about a test side that looks wrong; empty where nothing does."""
    config = contract.config
    if not config.test or contract.base_sha == FIRST_COMMIT:
        return ""
    where = contract.origins.get("tests.side", "").partition(" [")[0] or CONFIG_FILE
    return survey(vault, contract.head, config.test, config.tests.side, where)


def _first_checkpoint(session: WorkspaceSession) -> str:
    """The commit the delivery starts from, byte for byte, before anybody has said anything; and the worktree at it."""
    told = {"format": 1, "delivery": session.contract.delivery, "step": Step.PREPARE, "summary": "prepared"}
    first = checkpoints.begin(session.workspace, told)
    session.restore(first)
    return first


def _summary(contract: Contract, done: SetUp, baseline: TestVerdict | None, known: bool) -> str:
    """`setup 17 s · 455 green`. `known`: an earlier delivery on the same base has run its tests."""
    setup = f"setup {span(done.seconds)}" + (", kept" if done.known else "") if contract.config.setup.commands else ""
    if contract.base_sha == FIRST_COMMIT:
        tests = "empty repository"
    elif baseline is None:
        tests = "no test command"
    elif baseline.status is TestsStatus.GREEN:
        tests = f"{baseline.passed} green" if baseline.passed is not None else baseline.summary
    else:
        tests = f"already red on {contract.base}: {baseline.summary}"
    tests = tests[:120] + (" (known)" if known else "")
    return " · ".join(part for part in (setup, tests) if part)

"""Run activity `prepare`: read the repository and configuration, make the workspace, run setup and the base's tests,
and write the first checkpoint, all before a cent is spent. A retry or fork goes on from an earlier run's checkpoint.
Activities that need a workspace of their own use `PrepareActivity.make_workspace`.

Effect: a workspace on this host; in the vault the contract (the delivery's fixed terms), the plan if one came with the
request, and the first checkpoint. Looks first: a valid workspace is reused, setup is not run twice. Key: the delivery.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from temporalio import activity

from activities.contract_builder import ContractBuilder
from activities.forking import fork_summary, prepare_fork
from activities.run_tests import BaseTests, test_base
from perdure.adapters.agents.resolve_agents import next_efforts, unpriced_models, uses_cli_agent
from perdure.adapters.checks.experiment.commit_pair import check_test_side
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.publish import check_base_kept
from perdure.adapters.git.remote import FIRST_COMMIT, remote_heads
from perdure.adapters.git.retention import record_branches
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace, worktree_path
from perdure.adapters.repository.config import EffectiveConfig, fill_in_detected, lowered_budget, read_notes
from perdure.adapters.repository.detect import detect_commands
from perdure.adapters.repository.host import delivery_labels, shared_budgets
from perdure.adapters.repository.setup import name_empty_submodules, name_filtered_files
from perdure.adapters.repository.terms import delivery_title, retry_token_limit
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.home import Home
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.agent import turn_of_checkpoint
from perdure.adapters.worker.workspace_setup import SetupRecord, read_setup_record
from perdure.models.config.repository import CONFIG_FILE, Limits, ShipSettings
from perdure.models.crash import CrashPoint
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.steps import AGENTIC
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import (
    AgentSettings,
    BaseCommit,
    BuildSettings,
    DeliveryLimits,
    EscalationSettings,
    PreparedWorkspace,
    PrepareInput,
    PublishSettings,
    RequestFacts,
    TestVerdict,
    VisibilitySettings,
)
from perdure.models.duration import parse_duration
from perdure.models.errors import ForgeUnavailable, InvalidRequest, WorkspaceLost
from perdure.models.phases import Phase, Step
from perdure.models.rules.admission import fit_keywords
from perdure.models.rules.gates import gate_settings
from perdure.models.rules.parallel_builds import attempt_settings
from perdure.text import shell_word, shorten, span

UNKNOWN_HOST_PATIENCE = timedelta(minutes=10)
"""The time for which the first look at a remote waits until a host's name is known: as long as a network is away after
a laptop was opened. A misspelt name is no outage, and nothing is done or paid for yet."""

T = TypeVar("T")


class PrepareActivity:
    """The activity that prepares a delivery; also makes workspaces for the activities on a backlog's branch."""

    def __init__(self, host: Host) -> None:
        self._host, self._contract_builder = host, ContractBuilder(host)

    @activity.defn(name=Step.PREPARE)
    async def prepare(self, work: PrepareInput) -> PreparedWorkspace:
        """Prepare a delivery: read its contract, make its workspace, run setup and the base's tests, store its contract
        and plan, write the first checkpoint, and return the workspace with the settings that the workflow decides by. A
        retry or fork goes on from what an earlier run had prepared (`work.previous`). Whether people are asked and
        notified when this activity is cut off again and again is recorded in the delivery's journal first.

        Raises InvalidRequest or BadInput for a bad request or settings, SetupFailed when setup or a test command cannot
        start, SandboxUnavailable, NoPorts, ForgeUnavailable when the remote does not answer, and WorkspaceLost when
        this host does not have what it goes on from.
        """
        journal, notifies = self._host.journal(work.delivery), bool(self._host.listeners.addresses)
        if work.previous is not None:
            journal.record_deciders(work.previous.escalation.model_copy(update={"notifies": notifies}))
            return await self._prepare_retry(work, work.previous)
        journal.record_deciders(EscalationSettings(asks=work.request.questions is not False, notifies=notifies))
        update_heartbeat(doing="fetching")
        parent = work.request.parent_delivery
        vault, contract, settings = await self._read_contract(work)
        expiry = settings.config.gates.expire
        expiry_s = parse_duration(expiry) if expiry else 0.0
        journal.record_deciders(
            EscalationSettings(asks=settings.config.delivery.questions, expiry_s=expiry_s, notifies=notifies)
        )
        contract = await self.make_workspace(vault, contract, settings)
        notes = [] if parent is not None else [await in_thread(_survey_test_side, vault, contract)]
        own_branches = () if contract.existing else (contract.branch, *contract.branches.values())
        await in_thread(record_branches, self._host.home, contract.delivery, own_branches)
        contract_hash = await in_thread(self._host.store_contract, vault, contract)
        plan = work.request.plan.encode() if work.request.plan else b""
        if parent is not None:
            plan = await in_thread(vault.get_artifact, parent.delivery, parent.plan)
        artifact = await in_thread(vault.put_artifact, work.delivery, plan) if plan else ""
        crash_point(CrashPoint.DURING_PREPARE)
        async with self._host.open_session(work.delivery, contract_hash) as session:
            first_checkpoint = await in_thread(_write_first_checkpoint, session)
            update_heartbeat(doing="testing the base")
            base_tests = (
                await test_base(session, CONFIG_FILE) if contract.config.test and parent is None else BaseTests()
            )
            await in_thread(session.restore, first_checkpoint)
            title = await in_thread(delivery_title, vault, contract)
            setup_record = await in_thread(read_setup_record, session.directory)
            notes.append(await in_thread(name_empty_submodules, session.workspace))
            notes.append(await in_thread(name_filtered_files, session.workspace))
        prepared = self._make_result(
            work.request, contract, contract_hash, artifact, first_checkpoint, base_tests, title, setup_record
        )
        summary = " · ".join(part for part in (prepared.summary, *notes) if part)
        summary = f"task {parent.task} of the plan, on {contract.base_sha[:7]}" if parent is not None else summary
        if lowered := lowered_budget(work.request, self._host.config):
            summary += f" · {lowered}"
        return prepared.model_copy(update={"summary": summary})

    async def _prepare_retry(self, work: PrepareInput, previous: PreparedWorkspace) -> PreparedWorkspace:
        """Prepare a delivery that goes on: under the same contract, in a valid workspace that is set up again where
        needed and restored to the requested checkpoint, or to the newest whole one before it when that is damaged.
        Return `previous` with what this host and the new request change in it.

        A fork first gets a contract and a workspace of its own (`prepare_fork`). Raises WorkspaceLost when no
        checkpoint is whole, or this host does not have the delivery; ForgeRefused when its base was rewritten
        meanwhile; SetupFailed, SandboxUnavailable or NoPorts when the workspace cannot be made ready.
        """
        if (forked := work.request.forked) is not None:
            previous = await prepare_fork(
                self._host,
                work,
                forked,
                previous,
                lambda vault, terms: self._with_worktree(vault, terms, lambda tree: tree),
            )
        requested_checkpoint, reread = work.checkpoint or previous.checkpoint, ""
        async with self._host.open_session(work.delivery, previous.contract) as session:
            if Phase.SHIP in previous.phases or work.request.push:
                await in_thread(self._check_base, session.vault, session.contract)
            await in_thread(session.workspace.mark_active)
            checkpoint = await in_thread(
                _newest_whole_checkpoint, session.vault, requested_checkpoint, previous.checkpoint
            )
            await in_thread(session.restore, checkpoint)
            position = await in_thread(turn_of_checkpoint, session.vault, checkpoint)
            contract = session.contract
            if forked is None and (ship := await in_thread(self._current_ship, session, work.request)) is not None:
                config = contract.config.model_copy(update={"ship": ship})
                contract = contract.model_copy(update={"config": config})
                terms = await in_thread(self._host.store_contract, session.vault, contract)
                publishing = {"draft": ship.draft, "allow_untested": ship.allow_untested}
                previous = previous.with_changes({"publishing": publishing}, contract=terms)
                reread = f" · [ship] as on {contract.base} now"
        damaged = checkpoint != requested_checkpoint
        requested_usd, max_limits = work.request.budget_usd, self._host.config.limits
        limits = {
            "budget_usd": min(requested_usd, max_limits.budget_usd)
            if requested_usd is not None
            else previous.limits.budget_usd,
            "budget_tokens": retry_token_limit(work.request.tokens or previous.limits.budget_tokens, max_limits.tokens),
        }
        prepared = previous.with_changes(
            {"limits": limits},
            summary=fork_summary(forked) if forked else f"goes on from its last {'whole ' * damaged}checkpoint{reread}",
            fallback=checkpoint if damaged else "",
            fallback_position=position if damaged else None,
        )
        if lowered := lowered_budget(work.request, self._host.config):
            prepared = prepared.model_copy(update={"summary": f"{prepared.summary} · {lowered}"})
        return self._with_settings(prepared, contract, work.request)

    def _check_base(self, vault: Vault, contract: Contract) -> None:
        """Raise ForgeRefused where the base was rewritten on the remote, so that nothing which is built on the old one
        could be published. A remote that does not answer is asked again at the push. What lands on a branch is brought
        onto another base first: there nothing is asked."""
        if contract.landing is not None and not contract.landing.ships:
            return
        vault, head = vault.with_keys(self._host.forges), contract.head or contract.base_sha
        retry_command = f"perdure retry {shell_word(activity.info().workflow_id or '')}"
        with suppress(ForgeUnavailable):
            check_base_kept(vault, contract, remote_heads(vault.url, vault.keys), head, retry_command)

    def _current_ship(self, session: WorkspaceSession, request: DeliveryRequest) -> ShipSettings | None:
        """Return the settings `[ship]` as they are on the remote's base now, so that people can mend what a pull
        request was refused for; None where they are those of the contract, the remote does not answer, or the delivery
        opens no pull request of its own. Raises BadInput where the file is not valid there."""
        contract = session.contract
        lands = contract.landing is not None and not contract.landing.ships
        if lands or Phase.SHIP not in contract.config.delivery.phases:
            return None
        with suppress(ForgeUnavailable):
            if (tip := session.vault.with_keys(self._host.forges).fetch_branch(contract.base)) is not None:
                ship = self._contract_builder.read_settings(session.vault, contract.base, tip, request).config.ship
                return ship if ship != contract.config.ship else None
        return None

    async def _read_contract(self, work: PrepareInput) -> tuple[Vault, Contract, EffectiveConfig]:
        """Read the contract and return it with its vault and its settings. Raises ForgeUnavailable, which is retried,
        when the remote does not answer; InvalidRequest when the name of its host was not known for
        UNKNOWN_HOST_PATIENCE, and for a bad request or settings."""
        try:
            return await in_thread(self._contract_builder.build_contract, work.delivery, work.request)
        except ForgeUnavailable as error:
            info = activity.info()
            waited = info.current_attempt_scheduled_time - info.scheduled_time  # by one clock, the server's
            if error.unknown_host and waited > UNKNOWN_HOST_PATIENCE:
                raise InvalidRequest(error.what, where=error.where, fix=error.fix) from error
            raise

    async def make_workspace(self, vault: Vault, contract: Contract, settings: EffectiveConfig) -> Contract:
        """Make a worktree for the contract, or reuse a valid one, and return the contract completed with the commands
        and notes found in its files. Raises Superseded when a newer attempt has taken over the workspace."""
        return await self._with_worktree(vault, contract, lambda tree: complete_contract(contract, settings, tree))

    async def _with_worktree(self, vault: Vault, contract: Contract, use: Callable[[Path], T]) -> T:
        """Make the delivery's worktree, or reuse a valid one, and return what `use` returns for its path; both under
        the worktree's lease.

        When the earlier writer is not proved to be gone, the directory of the next generation is used: a worker that
        sleeps in the middle of this keeps its directory. Raises Superseded when a newer attempt has taken over.
        """
        home, delivery = self._host.home, contract.delivery
        generation = await in_thread(_recorded_generation, home, delivery)
        while True:
            async with self._host.leases.acquire(delivery, worktree_path(home, delivery, generation).name) as lease:
                if lease.proved:
                    workspace = await in_thread(self._open_or_create, vault, contract, generation)
                    lease.check()
                    return await in_thread(use, workspace.path)
            generation += 1

    def _open_or_create(self, vault: Vault, contract: Contract, generation: int) -> Workspace:
        """Open the delivery's workspace when it was made for the same commit in the same vault, rebuild what is not
        valid in it, and restore the base's files; otherwise create one. (The base may have moved since an attempt that
        failed.)"""
        home, delivery, head = self._host.home, contract.delivery, contract.head
        try:
            record = Workspace.open(home, delivery).record()
        except WorkspaceLost:
            return Workspace.create(home, vault, delivery, head, generation=generation)
        if record.base_sha != head or record.vault != str(vault.path):
            return Workspace.create(home, vault, delivery, head, generation=generation)
        workspace, _ = Workspace.open_or_rebuild(home, vault, delivery, head, generation=generation)
        checkpoints.restore_base(workspace)  # tests and notes are read from its files: they must be the commit's
        return workspace

    def _with_settings(
        self, prepared: PreparedWorkspace, contract: Contract, request: DeliveryRequest
    ) -> PreparedWorkspace:
        """Return the workspace with the settings that depend on this host, its release and the request: gates, notices,
        visibility, publishing, shared budgets. They are set anew for a delivery that is retried. A plan's task or an
        attempt has no gates and asks nobody."""
        config, listeners, most = contract.config, self._host.listeners.addresses, self._host.config.limits
        decisions = gate_settings(config, prepared.phases, request).model_copy(
            update={"notifies": bool(listeners), "comments": True}
        )
        if contract.is_task:
            decisions = decisions.model_copy(update={"asks": False, "gates": ()})
        if request.forked is not None and request.forked.attempt:
            decisions = decisions.model_copy(update={"asks": False, "gates": (), "notifies": False, "comments": False})
        visibility = VisibilitySettings(
            attributes=bool(self._host.search_attributes),
            extra_attributes=self._host.extra_search_attributes,
            labels=fit_keywords(delivery_labels(contract, request)),
            page=self._host.page_address(),
        )
        publishing = {
            "hosted": self._contract_builder.has_hosted_forge(contract),
            "publisher": self._host.publisher_queue,
            "screenshots": bool(config.app.start),
        }
        piece_changes: dict[str, dict[str, Any]] = {
            "limits": {
                "shared_budgets": shared_budgets(self._host.config, contract, request),
                "most_usd": most.budget_usd,
                "most_tokens": most.tokens,
                "most_time_s": parse_duration(most.time),
            },
            "agents": {
                "efforts": next_efforts(config.steps),
                "proxied": uses_cli_agent(config),
                "unpriced": unpriced_models(contract),
            },
            "building": {"document": config.delivery.document, "inspects": not contract.is_task},
            "publishing": publishing,
        }
        home = self._host.home
        queues: dict[str, Any] = {
            "queue": home.queue(),
            "command_queue": home.command_queue(),
            "host_may_be_away": self._host.shares_server,
        }
        return prepared.with_changes(piece_changes, decisions=decisions, visibility=visibility, **queues)

    def _make_result(
        self,
        request: DeliveryRequest,
        contract: Contract,
        contract_hash: str,
        plan_artifact: str,
        checkpoint: str,
        base_tests: BaseTests,
        title: str,
        setup_record: SetupRecord,
    ) -> PreparedWorkspace:
        """Return the result of `prepare`, made of the request, the contract and its artifact's hash, the plan's
        artifact, the first checkpoint, the base's tests, the title, and the record of setup."""
        config, base_verdict, landing = contract.config, base_tests.verdict, request.landing
        if contract.parent_delivery is not None:
            title = contract.parent_delivery.title
        prepared = PreparedWorkspace(
            queue=self._host.home.queue(),
            command_queue=self._host.home.command_queue(),
            host_may_be_away=self._host.shares_server,
            contract=contract_hash,
            phases=tuple(Phase(phase) for phase in config.delivery.phases),
            head=contract.head,
            branch=contract.branch,
            branches=contract.branches,
            checkpoint=checkpoint,
            summary=_summary_line(contract, setup_record, base_verdict, base_tests.is_reused),
            base_commit=BaseCommit(
                branch=contract.base,
                sha=contract.base_sha,
                baseline=base_tests.artifact,
                is_red=base_verdict is not None and base_verdict.status is TestsStatus.RED,
            ),
            request=RequestFacts(plan=plan_artifact, issue=contract.issue.number if contract.issue else 0, title=title),
            limits=DeliveryLimits(
                budget_usd=config.limits.budget_usd,
                budget_tokens=config.limits.tokens or 0,
                time_s=parse_duration(config.limits.time),
                turns_per_step=config.limits.turns_per_step,
                test_fixes=config.limits.test_fixes if request.fix else 0,
                review_fixes=config.limits.review_fixes if request.fix else 0,
                is_shared=_has_limits(request, config.limits),
            ),
            agents=AgentSettings(models={str(step): getattr(config.steps, step).model for step in AGENTIC}),
            building=BuildSettings(
                specialists=config.delivery.specialists, has_tests=bool(config.test), **attempt_settings(contract)
            ),
            publishing=PublishSettings(
                on_failure=config.delivery.on_failure,
                allow_untested=config.ship.allow_untested,
                draft=config.ship.draft,
                landing=landing.branch if landing is not None and not (landing.decompose or landing.ships) else "",
            ),
        )
        return self._with_settings(prepared, contract, request)


def _has_limits(request: DeliveryRequest, limits: Limits) -> bool:
    """Return True when the delivery has to ask for room under its repository's limits on deliveries or pull requests
    before it goes on. A task of another delivery's plan never has to: it counts as a part of that one."""
    if request.parent_delivery is not None:
        return False
    return limits.deliveries is not None or limits.open_pull_requests is not None


def _newest_whole_checkpoint(vault: Vault, checkpoint: str, first: str) -> str:
    """Return the checkpoint, or the newest one before it of which nothing is missing from the vault.

    first  prepare's own checkpoint, where the search goes on when no whole one is found from the other

    Raises WorkspaceLost when all of them are damaged.
    """
    whole = vault.newest_whole_commit(checkpoint) or vault.newest_whole_commit(first)
    if whole is None:
        raise WorkspaceLost(f"checkpoint {checkpoint[:12]} and all before it are damaged", where=str(vault.path))
    return whole


def _recorded_generation(home: Home, delivery: str) -> int:
    """Return the number of the delivery's newest worktree directory, as its record says; 0 when there is no record."""
    try:
        return Workspace.open(home, delivery).record().generation
    except WorkspaceLost:
        return 0


def complete_contract(contract: Contract, settings: EffectiveConfig, tree: Path) -> Contract:
    """Return the contract completed with what the files of the worktree `tree` say: detected commands when nobody wrote
    any down, and notes for agents."""
    settings = fill_in_detected(settings, detect_commands(tree))
    notes = read_notes(tree, settings.config.delivery.notes)
    return contract.model_copy(update={"config": settings.config, "origins": settings.origins, "notes": notes})


def _survey_test_side(vault: Vault, contract: Contract) -> str:
    """Return one line about what looks wrong with the test side (test files and their data) at the commit that the
    delivery builds on; empty when nothing does, without test commands, and in an empty repository. Raises
    InvalidRequest when the setting `[tests] side` leaves no product file."""
    config = contract.config
    if not config.test or contract.base_sha == FIRST_COMMIT:
        return ""
    origin = contract.origins.get("tests.side", "").partition(" [")[0] or CONFIG_FILE
    return check_test_side(vault, contract.head, config.test, config.tests.side, origin)


def _write_first_checkpoint(session: WorkspaceSession) -> str:
    """Write the checkpoint that the delivery starts from, with the commit's files byte for byte and no conversation,
    restore the worktree to it, and return it."""
    metadata = {"format": 1, "delivery": session.contract.delivery, "step": Step.PREPARE, "summary": "prepared"}
    checkpoint = checkpoints.write_initial_checkpoint(session.workspace, metadata)
    session.restore(checkpoint)
    return checkpoint


def _summary_line(
    contract: Contract, setup_record: SetupRecord, base_verdict: TestVerdict | None, is_reused: bool
) -> str:
    """Return the line `setup 17 s · 455 green`: how long setup took, unless it has no commands, and how the base's
    tests went, with `(known)` when an earlier delivery on the same base has run them (`is_reused`)."""
    setup_text = (
        f"setup {span(setup_record.seconds)}" + (", kept" if setup_record.reused else "")
        if contract.config.setup.commands
        else ""
    )
    if contract.base_sha == FIRST_COMMIT:
        tests = "empty repository"
    elif base_verdict is None:
        tests = "no test command"
    elif base_verdict.status is TestsStatus.GREEN:
        tests = f"{base_verdict.passed} green" if base_verdict.passed is not None else base_verdict.summary
    else:
        tests = f"already red on {contract.base}: {base_verdict.summary}"
    tests = shorten(tests, 120) + (" (known)" if is_reused else "")
    return " · ".join(part for part in (setup_text, tests) if part)

"""Follow: an integration branch stands on its base as it is now, tested there, and then moved by compare-and-swap.

Effects: `follow` makes commits, and a workspace to test them in, on this host alone, `check_landed` the workspace;
`move_branch` moves the branch on the remote, by a push with a lease. All look first: the same commits become the same
ones again, and a branch that is there already has been moved. Key: the branch and the commit it is moved from. No model
output chooses anything here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import monotonic

from temporalio import activity

from activities.backlog import Backlogs, beating
from activities.prepare import Preparation
from activities.run_tests import Base, hold, name_of_check, test_base, test_commit
from activities.terms import CONFIG_FILE, Terms
from perdure.adapters.checks import tests
from perdure.adapters.checks.verdict import verdict
from perdure.adapters.git.branch import push
from perdure.adapters.git.landing import fetch_landing, gone
from perdure.adapters.git.remote import remote_heads
from perdure.adapters.git.replay import items_on, replay
from perdure.adapters.git.vault import Vault
from perdure.adapters.repository.config import Effective
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.backlog import CHECKS_S
from perdure.models.config import TestCommand
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.errors import ForgeRefused, InvalidRequest
from perdure.models.following import ChecksHeld, Followed, FollowInput, Moved, MoveInput
from perdure.models.ids import branch_name
from perdure.models.report import TestReport
from perdure.models.result import TestsStatus
from perdure.models.work import TestVerdict

_PROBLEM_CHARS = 600


@dataclass(frozen=True)
class _Found:
    """`head` is the branch's commit on the base; `tested`: there is nothing to find out about it; `kept`: the base has
    what the branch stood on."""

    vault: Vault
    contract: Contract
    settings: Effective
    onto: str
    kept: bool = True
    head: str = ""
    commits: int = 0
    problem: str = ""
    tested: bool = False


class Following:
    def __init__(self, host: Host) -> None:
        self._host, self._terms, self._preparing = host, Terms(host), Preparation(host)

    @activity.defn
    async def follow(self, work: FollowInput) -> Followed:
        """Raises ForgeRefused (the branch is gone, or was put back), ForgeUnavailable, InvalidRequest, SetupFailed."""
        now_doing(doing="fetching")
        try:
            found = await in_thread(self._look, work)
        except InvalidRequest as error:
            if not error.what.startswith("base: there is no branch"):
                raise
            return Followed(problem=f"{work.request.base} is not on the remote any more")
        contract = found.contract
        told = Followed(
            base_sha=contract.base_sha,
            onto=found.onto,
            head=found.head,
            problem=found.problem[:_PROBLEM_CHARS],
            queue=self._host.publisher or self._host.home.queue(),
        )
        if found.problem or found.tested:
            return told
        crash_point(CrashPoint.DURING_FOLLOW)
        judged = await self._judged(work, found)
        red = judged.status is TestsStatus.RED
        at = f"on {contract.base} at {contract.base_sha[:7]}"
        rewritten = "" if found.kept else ", which somebody has rewritten"
        told = told.model_copy(update={"host": self._host.home.queue()})
        if red:
            words = f"{at} its tests are red: {judged.summary}"[:_PROBLEM_CHARS]
            return told.model_copy(update={"head": "", "problem": words})
        count = f"{found.commits} commit{'s' if found.commits != 1 else ''}"
        summary = f"stands {at}{rewritten}: {count}, {judged.summary}"[:_PROBLEM_CHARS]
        checked = tuple(item for item in work.check if item not in judged.unchecked)
        return told.model_copy(update={"summary": summary, "checked": checked})

    @activity.defn
    async def check_landed(self, work: FollowInput) -> ChecksHeld:
        """Raises as `follow` does; InvalidRequest, too, where the base is gone."""
        now_doing(doing="fetching")
        found = await in_thread(self._as_it_stands, work)
        contract = await self._preparing.placed(found.vault, found.contract, found.settings)
        sealed = await in_thread(self._host.keep_contract, found.vault, contract)
        async with self._host.session(work.delivery, sealed) as session:
            told = await _checked(session, work, found)
        return told.model_copy(update={"head": found.head, "host": self._host.home.queue()})

    @activity.defn
    async def move_branch(self, work: MoveInput) -> Moved:
        """Raises ForgeRefused, ForgeUnavailable."""
        async with beating():
            moved = await in_thread(self._move, work)
        crash_point(CrashPoint.AFTER_FOLLOW)
        return moved

    def _look(self, work: FollowInput) -> _Found:
        vault, contract, settings = self._terms.read(work.delivery, work.request)
        base, onto = contract.base_sha, fetch_landing(vault, contract.branch, work.landed)
        kept = vault.has(work.base_sha) and vault.is_ancestor(work.base_sha, base)
        dropped = not kept and vault.has(work.base_sha) and vault.is_ancestor(work.base_sha, onto)
        found = _Found(vault, contract, settings, onto, kept)
        if vault.is_ancestor(base, onto) and not dropped:  # somebody may have brought it there by hand
            known = base == work.base_sha or onto in (base, work.landed)
            return self._on(work, found, onto, 0, tested=known)
        if vault.is_ancestor(onto, base):  # all of it was merged, or nothing has landed: the base itself is no question
            return self._on(work, found, base, 0, tested=True)
        made = replay(vault, onto, base, work.base_sha)
        if made.problem:
            words = f"{contract.branch} cannot be brought onto {contract.base} at {base[:7]}: {made.problem}"
            return replace(found, problem=words)
        return self._on(work, found, made.head, made.commits, tested=False)

    def _as_it_stands(self, work: FollowInput) -> _Found:
        vault, contract, settings = self._terms.read(work.delivery, work.request)
        onto = fetch_landing(vault, contract.branch, work.landed)
        return self._on(work, _Found(vault, contract, settings, onto), onto, 0, tested=False)

    def _on(self, work: FollowInput, found: _Found, head: str, commits: int, *, tested: bool) -> _Found:
        """With the settings of the commit that is tested: what landed may have changed them."""
        vault, settings = found.vault, found.settings
        if not tested:
            ref = f"refs/heads/{branch_name(work.delivery)}"
            vault.remove_stale_locks(ref)
            vault.move_ref(ref, head, vault.read_ref(ref))
            settings = self._terms.settings(vault, found.contract.branch, head, work.request)
        on = {"head": head, "config": settings.config, "origins": settings.origins}
        terms = found.contract.model_copy(update=on)
        return replace(found, contract=terms, settings=settings, head=head, commits=commits, tested=tested)

    async def _judged(self, work: FollowInput, found: _Found) -> TestVerdict:
        """The ordinary verdict, compared with the base; and landed items' checks, compared with the branch before."""
        contract = await self._preparing.placed(found.vault, found.contract, found.settings)
        sealed = await in_thread(self._host.keep_contract, found.vault, contract)
        async with self._host.session(work.delivery, sealed) as session:
            return await _tested(session, work, found)

    def _move(self, work: MoveInput) -> Moved:
        target, vault = Backlogs(self._host).target(work)
        heads = remote_heads(vault.url, vault.keys)
        tip = heads.branches.get(work.branch)
        if work.branch == heads.default:
            raise ForgeRefused(f"{work.branch} is the default branch: nobody moves it", where=target.url)
        if tip is None:
            raise gone(vault, work.branch, work.onto)
        if tip not in (work.onto, work.head):
            return Moved()
        if tip != work.head:
            try:
                push(vault, vault.url, work.head, work.branch, work.onto)
            except ForgeRefused:
                if remote_heads(vault.url, vault.keys).branches.get(work.branch) == work.onto:
                    raise
                return Moved()  # somebody was faster, between the look and the push
        return Moved(head=work.head, commits=items_on(vault, work.head, work.base_sha, work.backlog))


async def _tested(session: WorkspaceSession, work: FollowInput, found: _Found) -> TestVerdict:
    contract, vault = session.contract, session.vault
    now_doing(doing=f"testing {contract.base}")
    base = await test_base(session, CONFIG_FILE) if contract.config.test else Base()
    baseline = tests.Baseline(base.report, contract.base) if base.report is not None else None
    tree = await in_thread(vault.tree_of, found.head)
    now_doing(doing=f"testing {contract.branch}")
    report = await test_commit(session, found.head, tree, "follow", baseline, makes_seed=False, commands=None)
    if work.check:
        held = await hold(session, report, work.check, "follow-checks", before=found.onto, name=contract.branch)
        return verdict(held[0]).model_copy(update={"unchecked": held[1]})
    return verdict(report)


async def _checked(session: WorkspaceSession, work: FollowInput, found: _Found) -> ChecksHeld:
    """Each held where its item landed; what fails now is somebody's who landed later, and is theirs to mend."""
    contract, vault = session.contract, session.vault
    tree = await in_thread(vault.tree_of, found.head)
    nothing = TestReport(commit=found.head, tree=tree)
    now_doing(doing=f"checking {contract.branch}")
    report, left_out = await hold(session, nothing, work.check, "last-checks", before="", name="")
    names = {name_of_check(id, one): id for id, commands in work.check.items() for one in commands}
    failed = [one for one in report.commands if one.verdict != "passed"]
    broken = tuple(dict.fromkeys(names[one.name] for one in failed))
    held = tuple(item for item in work.check if item not in (*left_out, *broken))
    if not failed:
        return ChecksHeld(held=held)
    check = TestCommand(name=failed[0].name, command=failed[0].command)
    since = await _since(session, work, found.head, broken[0], check)
    words = f"{contract.branch} at {found.head[:7]}: {verdict(report).summary}"
    return ChecksHeld(held=held, failed=broken, problem=f"{words}{since}"[:_PROBLEM_CHARS])


async def _since(session: WorkspaceSession, work: FollowInput, head: str, item: str, check: TestCommand) -> str:
    """With whose landing a check began to fail, by halves of what landed after its item; empty where time runs out."""
    vault, began = session.vault, monotonic()
    landed = [*reversed((await in_thread(items_on, vault, head, work.base_sha, work.backlog)).items())]
    later = landed[next((at for at, (id, _) in enumerate(landed) if id == item), len(landed)) :]
    if not later:
        return ""

    async def holds(commit: str) -> bool:
        tree = await in_thread(vault.tree_of, commit)
        ran = await test_commit(session, commit, tree, f"since-{commit[:12]}", None, makes_seed=False, commands=[check])
        return all(one.verdict == "passed" for one in ran.commands)

    if not await holds(later[0][1]):
        return f"; it fails where {item} landed, too ({later[0][1][:7]})"
    good, bad = 0, len(later)  # at `bad` it fails; behind the last item that is the branch's head
    while bad - good > 1:
        if monotonic() - began > CHECKS_S:
            return ""
        middle = (good + bad) // 2
        good, bad = (middle, bad) if await holds(later[middle][1]) else (good, middle)
    return f"; it held until {later[bad][0]} landed ({later[bad][1][:7]})" if bad < len(later) else ""

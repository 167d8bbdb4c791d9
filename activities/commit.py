"""Activity `commit`: makes a checkpoint's files one commit on the delivery's branch.

Effect: one commit and the branch pointing at it. Looks first: a child of the parent with the same trailers and tree is
adopted. Key: delivery, step, attempt, parent.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.forges.body import subject_line
from perdure.adapters.git.command import IDENTITY
from perdure.adapters.git.landing import predict_conflicts
from perdure.adapters.git.publish import commit_checkpoint, find_commit
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.sealed_facts import commit_fact
from perdure.adapters.worker.sealed_publishing import sealed_subject
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.delivery.result_text import change_line
from perdure.models.delivery.work import CommitInput, CommitResult
from perdure.models.ids import branch_name, slug
from perdure.models.phases import Step


class CommitActivity(OnHost):
    """The activity that commits a checkpoint's files."""

    @activity.defn(name=Step.COMMIT)
    async def commit(self, work: CommitInput) -> CommitResult:
        """Commit the checkpoint's files onto the delivery's branch and return the commit with its size and predicted
        conflicts; a result without a commit when nothing differs from the parent. Raises Superseded when a newer
        attempt has taken over the workspace, WorkspaceLost when this host does not have it, SetupFailed,
        SandboxUnavailable or NoPorts when it cannot be made ready again."""
        async with self._host.open_session(work.delivery, work.contract) as session:
            facts = self._host.facts(work.delivery)
            subject = await in_thread(sealed_subject, facts, session.vault, session.contract, work.subject)
            result = await in_thread(_commit_to_branch, session, work.model_copy(update={"subject": subject}))
            if result.commit:
                await in_thread(facts.seal_facts, commit_fact(result.commit))
            return result


def _commit_to_branch(session: WorkspaceSession, work: CommitInput) -> CommitResult:
    """Make a commit of the checkpoint's files on top of `work.parent`, and move the delivery's branch and the
    worktree's HEAD to it. A commit of a killed attempt with the same parent, trailers and tree is adopted instead.

    Returns the commit, its size, that of the whole change, and the conflicts that a backlog's item would have with
    other open deliveries. When the tree is the parent's, nothing is moved and the result has no commit. Raises
    Superseded when a newer attempt has taken over the workspace.
    """
    vault, ref = session.vault, f"refs/heads/{branch_name(work.delivery)}"
    vault.remove_stale_locks(ref)
    trailers = {"Perdure-Delivery": work.delivery, "Perdure-Step": f"{work.step}/{work.attempt}"}
    if session.contract.config.git.sign_off:
        trailers["Signed-off-by"] = f"{IDENTITY['GIT_COMMITTER_NAME']} <{IDENTITY['GIT_COMMITTER_EMAIL']}>"
    session.lease.check()
    commit, tree = commit_checkpoint(
        session.workspace, checkpoint=work.checkpoint, parent=work.parent, message=_commit_message(work, trailers)
    )
    if tree == vault.tree_of(work.parent):
        return CommitResult(summary="nothing changed")
    # A killed attempt may have put this very commit on the branch already. Another tree under the same trailers is that
    # of a run that was rewound, and is replaced.
    tip = vault.read_ref(ref)
    adopted = find_commit(vault, ref, work.parent, trailers) if tip else None
    if adopted is not None and vault.tree_of(adopted) == tree:
        commit = adopted
    session.lease.check()
    if tip != commit:
        vault.move_ref(ref, commit, tip)
    session.workspace.advance_head(commit)
    files, added, deleted = vault.diff_stat(work.parent, commit)
    summary = change_line(files, added, deleted)
    place = (
        session.contract.landing if not session.contract.forked_from else None
    )  # an attempt's delivery reports conflicts
    return CommitResult(
        commit=commit,
        tree=tree,
        files=files,
        added=added,
        deleted=deleted,
        summary=summary,
        change=session.change_size(commit),
        conflicts=predict_conflicts(session.workspace, commit, slug(place.backlog)) if place else {},
    )


def _commit_message(work: CommitInput, trailers: dict[str, str]) -> str:
    """Return the commit's message: a subject line that begins with the kind of change, and the trailers. The kind is
    the request's for step `implement`, `docs` for `document`, and `bug` for the fixing steps."""
    kind = "bug"
    if work.step == Step.IMPLEMENT:
        kind = work.kind  # empty where the request was not classified, because a plan came with it
    elif work.step == Step.DOCUMENT:
        kind = "docs"
    lines = "\n".join(f"{name}: {value}" for name, value in trailers.items())
    return f"{subject_line(kind, work.subject)}\n\n{lines}\n"

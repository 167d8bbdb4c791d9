"""Commit: a checkpoint's files as one commit on the delivery's branch.

Effect: one commit and the branch pointing at it. Looks first: a child of the parent with the same trailers and tree is
adopted. Key: delivery, step, attempt, parent.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.forges.body import subject
from perdure.adapters.git.branch import commit_tree, find_commit
from perdure.adapters.git.door import IDENTITY
from perdure.adapters.git.foreseen import foreseen
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.ids import branch_name, slug
from perdure.models.phases import Step
from perdure.models.work import CommitInput, Committed


class Commits(OnHost):
    @activity.defn(name=Step.COMMIT)
    async def commit(self, work: CommitInput) -> Committed:
        """An empty result when nothing differs from the parent. Raises Superseded, WorkspaceLost."""
        async with self._host.session(work.delivery, work.contract) as session:
            return await in_thread(_commit, session, work)


def _commit(session: WorkspaceSession, work: CommitInput) -> Committed:
    vault, ref = session.vault, f"refs/heads/{branch_name(work.delivery)}"
    vault.remove_stale_locks(ref)
    trailers = {"Perdure-Delivery": work.delivery, "Perdure-Step": f"{work.step}/{work.attempt}"}
    if session.contract.config.git.sign_off:
        trailers["Signed-off-by"] = f"{IDENTITY['GIT_COMMITTER_NAME']} <{IDENTITY['GIT_COMMITTER_EMAIL']}>"
    session.lease.check()
    commit, tree = commit_tree(
        session.workspace, checkpoint=work.checkpoint, parent=work.parent, message=_message(work, trailers)
    )
    if tree == vault.tree_of(work.parent):
        return Committed(summary="nothing changed")
    # The branch may already hold this very commit: a worker died before it could say so. Another tree under the same
    # trailers is a superseded run's (a rewind), and is left behind.
    tip = vault.read_ref(ref)
    made = find_commit(vault, ref, work.parent, trailers) if tip else None
    if made is not None and vault.tree_of(made) == tree:
        commit = made
    session.lease.check()
    if tip != commit:
        vault.move_ref(ref, commit, tip)
    session.workspace.advance(commit)
    files, added, deleted = vault.diff_stat(work.parent, commit)
    summary = f"+{added} −{deleted} in {files} file" + ("s" if files != 1 else "")
    place = session.contract.landing if not session.contract.forked else None  # of an attempt its delivery will say
    return Committed(
        commit=commit,
        tree=tree,
        files=files,
        added=added,
        deleted=deleted,
        summary=summary,
        change=session.size_of(commit),
        conflicts=foreseen(session.workspace, commit, slug(place.backlog)) if place else {},
    )


def _message(work: CommitInput, trailers: dict[str, str]) -> str:
    kind = "bug"
    if work.step == Step.IMPLEMENT:
        kind = work.kind  # empty where nobody asked what it is: a plan came with the request
    elif work.step == Step.DOCUMENT:
        kind = "docs"
    lines = "\n".join(f"{name}: {value}" for name, value in trailers.items())
    return f"{subject(kind, work.subject)}\n\n{lines}\n"

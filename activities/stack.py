"""The pull requests of a stack: looked at, and brought into another branch before the one they are into goes away.

Effect: the base of a pull request, and that one is open again which a forge had closed with its base. Looks first: one
that is into that branch already, or that somebody has closed, is left alone. Key: the pull request's own branch. No
model output chooses anything here.
"""

from __future__ import annotations

from temporalio import activity

from activities.backlog import BacklogActivities, send_heartbeats
from activities.on_host import OnHost
from perdure.adapters.git.remote import remote_heads
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread_to_end
from perdure.models.crash import CrashPoint
from perdure.models.stack import PullRequestState, StackInput, StackState


class StackActivity(OnHost):
    """The activity that looks after the pull requests of a stack."""

    @activity.defn
    async def look_at_stack(self, work: StackInput) -> StackState:
        """Reopen and retarget the pull requests of a stack where that is asked for, and return the state of each, by
        item. Raises ForgeRefused, ForgeUnavailable."""
        async with send_heartbeats():
            return await in_thread_to_end(self._update_pull_requests, work)

    def _update_pull_requests(self, work: StackInput) -> StackState:
        """Find the newest pull request of each item, reopen it where it was closed with its base and that is back,
        bring it into the branch that is asked for, and return the state of each, by item. Items without a pull request
        are left out; without a forge that Perdure speaks to, all are."""
        target, vault = BacklogActivities(self._host).open_target(work)
        forge = self._host.forges.forge(target.url)
        if forge is None:
            return StackState()
        heads, states = remote_heads(vault.url, vault.keys).branches, dict[str, PullRequestState]()
        for pull in work.pulls:
            own_pulls = [candidate for candidate in forge.pulls_of_branch(pull.branch, pull.delivery) if candidate.ours]
            if not own_pulls:
                continue
            newest = max(own_pulls, key=lambda candidate: candidate.number)
            base, state = newest.base, newest.state
            if state == "closed" and pull.reopen and base in heads:
                forge.reopen_pull(newest.number)
                state = "open"
            if state == "open" and pull.to and pull.to != base and pull.to in heads:
                forge.change_base(newest.number, pull.to)
                crash_point(CrashPoint.AFTER_RETARGET)
                base = pull.to
            states[pull.item] = PullRequestState(state=state, into=base, base_gone=base not in heads)
        return StackState(pull_requests=states)

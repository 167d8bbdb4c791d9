"""The pull requests of a stack: looked at, and brought into another branch before the one they are into goes away.

Effect: the base of a pull request, and that one is open again which a forge had closed with its base. Looks first: one
that is into that branch already, or that somebody has closed, is left alone.
Key: the pull request's own branch. No model output chooses anything here.
"""

from __future__ import annotations

from temporalio import activity

from activities.backlog import Backlogs, beating
from activities.on_host import OnHost
from perdure.adapters.git.remote import remote_heads
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import to_the_end
from perdure.models.crash import CrashPoint
from perdure.models.stacked import Seen, StackInput, StackSeen


class Stacking(OnHost):
    @activity.defn
    async def look_at_stack(self, work: StackInput) -> StackSeen:
        """Raises ForgeRefused, ForgeUnavailable."""
        async with beating():
            return await to_the_end(self._look, work)

    def _look(self, work: StackInput) -> StackSeen:
        target, vault = Backlogs(self._host).target(work)
        forge = self._host.forges.forge(target.url)
        if forge is None:
            return StackSeen()
        heads, seen = remote_heads(vault.url, vault.keys).branches, dict[str, Seen]()
        for pull in work.pulls:
            ours = [one for one in forge.of_branch(pull.branch, pull.delivery) if one.ours]
            if not ours:
                continue
            newest = max(ours, key=lambda one: one.number)
            base, state = newest.base, newest.state
            if state == "closed" and pull.reopen and base in heads:
                forge.reopen(newest.number)
                state = "open"
            if state == "open" and pull.to and pull.to != base and pull.to in heads:
                forge.retarget(newest.number, pull.to)
                crash_point(CrashPoint.AFTER_RETARGET)
                base = pull.to
            seen[pull.item] = Seen(state=state, into=base, base_gone=base not in heads)
        return StackSeen(seen=seen)

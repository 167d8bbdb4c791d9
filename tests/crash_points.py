"""Points at which tests kill the worker that only some deliveries come by."""

from __future__ import annotations

from perdure.models.crash import CrashPoint

AT_A_HOSTED_FORGE = (CrashPoint.AFTER_COMMENT, CrashPoint.AFTER_ARTIFACTS)
"""Points that only a delivery to a forge with issues and accounts comes by."""

IN_AN_EMPTY_REPOSITORY = (CrashPoint.AFTER_FIRST_COMMIT,)
"""Points that only a delivery comes by whose repository has no commit yet."""

WHERE_SOMEBODY_IS_TOLD = (CrashPoint.AFTER_NOTICE,)
"""Points that only a delivery comes by whose host has addresses to tell."""

WHERE_A_BACKLOG_LANDS = (CrashPoint.DURING_REBASE, CrashPoint.AFTER_REBASE, CrashPoint.AFTER_LANDING)
"""Points that only a delivery comes by that is an item of a backlog."""

WHERE_A_BASE_MOVES = (CrashPoint.DURING_FOLLOW, CrashPoint.AFTER_FOLLOW, CrashPoint.AFTER_RETARGET)
"""Points that only a backlog comes by whose base moves, or whose stack is merged while it runs."""

WHERE_IT_IS_LONG = (CrashPoint.DURING_COMPACTION,)
"""Points that only a delivery comes by whose conversation is made shorter: tests/e2e/test_history.py."""

WHERE_SEVERAL_BUILD = (CrashPoint.AFTER_TASKS, CrashPoint.AFTER_ATTEMPTS)
"""Points that only a delivery comes by whose plan is built by several, its tasks or the whole of it: test_specialists,
test_attempts."""

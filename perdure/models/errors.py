"""One tree of errors.

    PerdureError                 anything a person reads: what, where, fix
    ├── BadInput                 exit 2: what was asked cannot be done as written
    ├── TemporalUnreachable      exit 3
    ├── NoWorker                 Temporal is there, and nobody who could answer for a workflow
    ├── NotBegun                 the workflow waits for the time at which it begins
    └── StepError                raised inside an activity; `retryable` says whether Temporal tries again
        ├── InvalidRequest       the submission itself is wrong: names the field and the nearest name
        ├── SetupFailed          setup or a test command cannot start: the delivery ends at $0.00
        ├── NoPorts              retryable: every port pair of this host is leased or taken
        ├── DiskFull             retryable: this host's disk has no room; nothing was paid for meanwhile
        ├── SandboxUnavailable   real work never runs without the sandbox it asked for
        ├── WorkCutOff           retryable: a sandbox was ended, or the worktree taken away: the attempt never happened
        ├── ModelUnavailable     retryable: 408, 409, 429, 5xx, 529, cut connections; may say when to come back
        ├── RepliesCut           the model's reply broke off too often in one turn; each may have been billed
        ├── AgentFailed          a CLI agent ended early, never ended, or does not speak its protocol
        ├── BudgetReached        a request could cost more than is left; carries the spending
        ├── ModelRefusesUs       400, 401, 402, 403, 404, 413, spend limits: a person must act
        ├── ForgeRefused         the forge or the remote said no, and would say it again
        ├── ForgeUnavailable     retryable: the forge or the remote could not be reached; may say when to come back
        ├── NoRoom               retryable: a limit on the repository's deliveries or pull requests is reached
        ├── NoticeRefused        whoever should be told of a delivery said no, and would say it again
        ├── NoticeUnheard        retryable: whoever should be told does not answer; may say when to come back
        ├── Superseded           retryable: a newer attempt owns the worktree, this one wrote nothing
        ├── Diverged             the vault holds another history than Temporal: hold, do not guess
        ├── WorkspaceLost        the workspace or its checkpoint is not on this host
        └── TurnKillsWorker      the same turn has been cut off three times: its worker died, its sandbox, its worktree

The name of a StepError's class is its type in Temporal history.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from perdure.text import redact_known, shell_word

if TYPE_CHECKING:
    from perdure.models.budget.ledger import LimitReached


class PerdureError(Exception):
    """An error for a person, in three short lines, without the secrets that this process knows.

    `what` says what is wrong, `where` names the file, flag or command, `fix` says what to do. `where` and `fix` may be
    empty.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = redact_known(what), redact_known(where), redact_known(fix)
        super().__init__(self.what)

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  where: {self.where}"] if self.where else []
        lines += [f"  fix: {self.fix}"] if self.fix else []
        return "\n".join(lines)


class BadInput(PerdureError):
    exit_code = 2


class BacklogNamed(BadInput):
    """A command about a delivery was given the id of a backlog, which is `where`."""


class TemporalUnreachable(PerdureError):
    exit_code = 3


class NoWorker(PerdureError):
    """Temporal is there, but no worker answers. `consequence`: what follows, in words, once a worker runs."""

    def __init__(self, what: str, *, where: str = "", consequence: str = "") -> None:
        fix = "perdure up --detach starts one"
        super().__init__(what, where=where, fix=f"{fix}; {consequence}" if consequence else fix)
        self.consequence = consequence


class NotBegun(PerdureError):
    """The workflow waits for the time at which it begins: after a delay, or by a cron schedule. `begins`: when."""

    def __init__(self, id: str, begins: datetime) -> None:
        super().__init__(not_begun_text(id, begins), where=id, fix=f"perdure cancel {shell_word(id)} takes it back")
        self.begins = begins


def not_begun_text(subject: str, begins: datetime) -> str:
    """Return the line that says when a workflow begins, `it has not begun yet: it begins at …`."""
    return f"{subject} has not begun yet: it begins at {begins:%Y-%m-%d %H:%M:%S} UTC"


class StepError(PerdureError):
    retryable: ClassVar[bool] = False


class InvalidRequest(StepError):
    """The submission itself is wrong: exit 2 at the command line, workflow Failed for every other client."""

    exit_code = 2


class SetupFailed(StepError): ...


class NoPorts(StepError):
    retryable = True


MAKE_ROOM = "make room; the delivery then goes on by itself"


class DiskFull(StepError):
    retryable = True


class SandboxUnavailable(StepError): ...


class WorkCutOff(StepError):
    """A death like a worker's: the work is rolled back and done again, and the same count bounds how often."""

    retryable = True


class ModelUnavailable(StepError):
    """The model's API cannot be reached or refuses for a while.

    retry_after    in seconds; None leaves the pause to the retry policy
    limit_reason   why it wants fewer requests from everybody with this key; empty: it does not
    """

    retryable = True

    def __init__(
        self, what: str, *, retry_after: float | None = None, limit_reason: str = "", where: str = "", fix: str = ""
    ) -> None:
        super().__init__(what, where=where, fix=fix)
        self.retry_after, self.limit_reason = retry_after, limit_reason


class RepliesCut(StepError): ...


class AgentFailed(StepError): ...


class BudgetReached(StepError):
    def __init__(self, reached: LimitReached) -> None:
        super().__init__(reached.reason)
        self.reached = reached


class ModelRefusesUs(StepError): ...


class ForgeRefused(StepError): ...


class ForgeUnavailable(StepError):
    """The forge or the remote could not be reached.

    retry_after   in seconds; None leaves the pause to whoever tries again
    unknown_host  the name of its host cannot be resolved
    """

    retryable = True

    def __init__(
        self,
        what: str,
        *,
        retry_after: float | None = None,
        where: str = "",
        fix: str = "",
        unknown_host: bool = False,
    ) -> None:
        super().__init__(what, where=where, fix=fix)
        self.retry_after, self.unknown_host = retry_after, unknown_host


class NoRoom(StepError):
    """No room for one more delivery in the repository, as long as others run or wait to be merged."""

    retryable = True


class NoticeRefused(StepError): ...


class NoticeUnheard(StepError):
    """Whoever should be told of a delivery does not answer. Names hosts, never addresses.

    retry_after  in seconds; None leaves the pause to the retry policy
    """

    retryable = True

    def __init__(self, what: str, *, retry_after: float | None = None, where: str = "", fix: str = "") -> None:
        super().__init__(what, where=where, fix=fix)
        self.retry_after = retry_after


class Superseded(StepError):
    """A newer attempt owns the worktree, and this one wrote nothing.

    Raised in an attempt that Temporal has given up, nobody receives it; in one that Temporal still waits for, a late
    older attempt has overtaken it.
    """

    retryable = True


class Diverged(StepError): ...


class WorkspaceLost(StepError): ...


class TurnKillsWorker(StepError): ...

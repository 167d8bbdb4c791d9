"""One tree of errors.

    PerdureError                 anything a person reads: what, where, fix
    ├── BadInput                 exit 2: what was asked cannot be done as written
    ├── TemporalUnreachable      exit 3
    ├── NoWorker                 Temporal is there, and nobody who could answer for a workflow
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
        ├── NoticeRefused        whoever should be told of a delivery said no, and would say it again
        ├── NoticeUnheard        retryable: whoever should be told does not answer; may say when to come back
        ├── Superseded           retryable: a newer attempt owns the worktree, this one wrote nothing
        ├── Diverged             the vault holds another history than Temporal: hold, do not guess
        ├── WorkspaceLost        the workspace or its checkpoint is not on this host
        └── TurnKillsWorker      the same turn has been cut off three times: its worker died, its sandbox, its worktree

The name of a StepError's class is its type in Temporal history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from perdure.models.ledger import Reached


class PerdureError(Exception):
    """An error for a person, in three short lines.

    `what` says what is wrong, `where` names the file, flag or command, `fix` says what to do. Both may be empty.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.fix = what, where, fix

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  where: {self.where}"] if self.where else []
        lines += [f"  fix: {self.fix}"] if self.fix else []
        return "\n".join(lines)


class BadInput(PerdureError):
    exit_code = 2


class TemporalUnreachable(PerdureError):
    exit_code = 3


class NoWorker(PerdureError):
    """`then`: what follows, in words, once a worker runs."""

    def __init__(self, what: str, *, where: str = "", then: str = "") -> None:
        fix = "perdure up --detach starts one"
        super().__init__(what, where=where, fix=f"{fix}; {then}" if then else fix)
        self.then = then


class StepError(PerdureError):
    retryable: ClassVar[bool] = False


class InvalidRequest(StepError):
    """Exit 2 at the command line, workflow Failed for every other client."""

    exit_code = 2


class SetupFailed(StepError): ...


class NoPorts(StepError):
    retryable = True


class DiskFull(StepError):
    retryable = True


class SandboxUnavailable(StepError): ...


class WorkCutOff(StepError):
    """A death like a worker's: rolled back, done again, and bounded by the same count."""

    retryable = True


class ModelUnavailable(StepError):
    """`retry_after` is in seconds; None leaves the pause to the retry policy. `limited`: it wants fewer requests from
    everybody with this key, and for this reason."""

    retryable = True

    def __init__(
        self, what: str, *, retry_after: float | None = None, limited: str = "", where: str = "", fix: str = ""
    ) -> None:
        super().__init__(what, where=where, fix=fix)
        self.retry_after, self.limited = retry_after, limited


class RepliesCut(StepError): ...


class AgentFailed(StepError): ...


class BudgetReached(StepError):
    def __init__(self, reached: Reached) -> None:
        super().__init__(reached.words)
        self.reached = reached


class ModelRefusesUs(StepError): ...


class ForgeRefused(StepError): ...


class ForgeUnavailable(StepError):
    """`retry_after` is in seconds; None leaves the pause to who tries again. `unknown_host`: no such name is known."""

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
    """For one more delivery, as long as others run or wait to be merged."""

    retryable = True


class NoticeRefused(StepError): ...


class NoticeUnheard(StepError):
    """`retry_after` is in seconds; None leaves the pause to the retry policy. Names hosts, never addresses."""

    retryable = True

    def __init__(self, what: str, *, retry_after: float | None = None, where: str = "", fix: str = "") -> None:
        super().__init__(what, where=where, fix=fix)
        self.retry_after = retry_after


class Superseded(StepError):
    """Of an attempt that Temporal has given up, nobody hears it; one it still waits for was overtaken by a late one."""

    retryable = True


class Diverged(StepError): ...


class WorkspaceLost(StepError): ...


class TurnKillsWorker(StepError): ...

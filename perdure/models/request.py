"""The request a client sends: the one argument of workflow type `Delivery`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from perdure.models.backlog import LandingPlace
from perdure.models.base import Recorded, Written, a_number, kind_of
from perdure.models.errors import InvalidRequest
from perdure.models.forking import ForkedFrom
from perdure.models.issue import IssueName
from perdure.models.limits import ATTEMPTS_MOST, LABEL_CHARS, LABELS_MOST, NAME_CHARS, PLACE_CHARS, TASK_QUEUE, USD_MOST
from perdure.models.phases import Phase, speaks_for_itself
from perdure.models.sent import a_switch, an_issue, bounded, left_out
from perdure.text import nearest


class ResumePoint(Recorded):
    """The point where a run stopped, so that another run can go on: `perdure retry` sends it back.

    It is kept in the memo `resume` of every run that ended without delivering. Shape of `state`:
    perdure.models.state.DeliveryState. `continued`: the same delivery goes on in a new run because its history grew
    long; nothing is prepared anew and no count begins again. `rewound`: the turn that it went back to, where it did;
    `asked`: the words and the model with which.
    """

    run_id: str
    state: dict[str, Any]
    continued: bool = False
    rewound: str = ""
    asked: dict[str, str] = {}


_PYTHON_WORDS = re.compile(r"\ba valid (tuple|dictionary)(?: or instance of \w+)?$")
_JSON_FOR = {"tuple": "a list", "dictionary": "an object"}
"""JSON's words for Python's types: people send JSON."""

Label = Annotated[str, Field(min_length=1, max_length=LABEL_CHARS)]
Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARS)]


class DeliveryRequest(Written):
    """One request that shall become one pull request. Only `repository` and `request` (or `issue`) are required; null
    counts as left out.

    repository          path, file://, https://, ssh:// or scp-like address of the target
    request             what is wanted, in words; at most 64 KiB; may be left out when an issue says it all, and where
                        an existing branch is only tested, published, or reviewed against a plan
    base                branch to start from and to merge into; default: the target's default branch
    phases              which of plan, build, test, review, ship; default: the repository's setting, else all
    gates               before which of plan, pull_request a person decides; beside those of the repository's settings
    budget_usd          may lower the configured budget, and raise it up to the host's limit
    tokens              the same for tokens, read and written together; there is no limit unless one is configured
    questions           false: nobody is asked. Agents decide, and list in the pull request what they assumed; tests
                        that cannot be told from those that failed on the base make a draft
    labels              put on the pull request, beside those of the settings; a budget may be shared by label
    issue               an open issue of the repository that says what is wanted: 12, "#12" or its address
    branch              an existing branch to work on instead of starting from the base
    plan                a plan in Markdown, used instead of making one
    spec_version        of this shape: 1
    allow_test_changes  the request itself is about tests
    fix                 whether red tests and blockers are mended (default), or only reported
    push                push the branch's new commits although no pull request is asked for
    model               one model for every step, overriding configuration
    agent               one agent for every step, likewise: "built-in", or a preset that its host has
    config              text of a perdure.toml to use instead of the base branch's
    source              the submitter's checkout, for `[setup] copy`; counts with `proof` only
    proof               set by the command line and by clients that have this home's key (docs/submitting.md): without
                        it no path of the worker's host counts, but for repositories its owner's settings allow
    attempts            at the plan, 1 to 5: each is built and judged by itself, and the best one is taken
    after_red           the other attempts begin only when the first one is no good
    landing             set by a backlog: its change lands there, instead of a pull request
    resume              set by `perdure retry`: go on where another run ended
    forked              set by `perdure fork`: the turn of another delivery before which this one begins
    """

    repository: str = Field(min_length=1, max_length=PLACE_CHARS)
    request: str = ""
    base: Name | None = None
    phases: tuple[Phase, ...] | None = None
    gates: tuple[Literal["plan", "pull_request"], ...] = ()
    budget_usd: float | None = Field(default=None, gt=0, le=USD_MOST, allow_inf_nan=False)
    tokens: int | None = Field(default=None, ge=1)
    questions: bool | None = None
    labels: tuple[Label, ...] = Field(default=(), max_length=LABELS_MOST)
    issue: int | str | None = None
    branch: Name | None = None
    plan: str | None = None
    allow_test_changes: bool = False
    fix: bool = True
    push: bool = False
    spec_version: int = Field(default=1, ge=1, le=1)
    model: Name | None = None
    agent: Name | None = None
    attempts: int | None = Field(default=None, ge=1, le=ATTEMPTS_MOST)
    after_red: bool | None = None
    config: str | None = None
    source: str | None = Field(default=None, max_length=PLACE_CHARS)
    proof: str | None = Field(default=None, max_length=NAME_CHARS)
    landing: LandingPlace | None = None
    resume: ResumePoint | None = None
    forked: ForkedFrom | None = None

    @property
    def issue_number(self) -> int | None:
        return IssueName.parse(self.issue).number if self.issue is not None else None

    @property
    def task(self) -> str:
        """The words of the one task of a plan that it is about; empty: it is no task."""
        return self.request if self.landing is not None and self.landing.within is not None else ""

    @property
    def host(self) -> str:
        """The queue where it is prepared: any host's, but for a task or a fork that of the delivery it is of."""
        if self.forked is not None:
            return self.forked.queue
        return self.landing.within.queue if self.landing is not None and self.landing.within is not None else TASK_QUEUE

    @property
    def caption(self) -> str:
        """The request in one line: the first words, and the issue's number before them."""
        number = self.issue_number
        return " ".join([*([f"#{number}"] if number else []), *self.request.split()])

    _left_out = model_validator(mode="before")(left_out)
    _numbers = field_validator("budget_usd", "tokens", "attempts", "spec_version", mode="before")(a_number)

    _switches = field_validator("questions", "after_red", "allow_test_changes", "fix", "push", mode="before")(a_switch)
    _bounded = field_validator("request")(bounded)
    _small = field_validator("plan", "config")(bounded)
    _issue_named = field_validator("issue", mode="before")(an_issue)

    @model_validator(mode="after")
    def _whole(self) -> DeliveryRequest:
        """Check what no field alone can tell."""
        if self.issue is not None:
            if not IssueName.parse(self.issue).belongs_to(self.repository):
                raise ValueError(f"issue: {str(self.issue)[:200]} is not an issue of {self.repository[:200]}")
        elif not self.request.strip() and speaks_for_itself(self.phases, self.branch, self.plan):
            pass
        elif "request" not in self.model_fields_set:
            raise ValueError("request: required field is missing (or name an issue)")
        elif not self.request.strip():
            raise ValueError("request: is empty: say what you want")
        if (self.attempts or 1) > 1 and (self.branch is not None or (self.landing and self.landing.within)):
            raise ValueError("attempts: work on a branch that is there, and a task of a plan, are built once")
        return self


def parse_request(raw: Any) -> DeliveryRequest:
    """The request a client sent, or InvalidRequest with one line that names the field and the nearest name."""
    if not isinstance(raw, dict):
        raise InvalidRequest(
            f"expected one JSON object, got {kind_of(raw)}",
            fix='send {"repository": …, "request": …}',
        )
    try:
        return DeliveryRequest.model_validate(raw)
    except ValidationError as error:
        raise InvalidRequest(explain(error, tuple(DeliveryRequest.model_fields))) from None


def first_problem(error: ValidationError) -> ErrorDetails:
    """The one that is told: an unknown field first, it may be why others are missing."""
    return min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")


def explain(error: ValidationError, names: tuple[str, ...]) -> str:
    """The first problem of a validation error as `field: what is wrong`, unknown fields with the nearest name."""
    problem = first_problem(error)
    path = ".".join(str(part) for part in problem["loc"])[:100]  # it goes into history, whatever was sent
    if problem["type"] == "extra_forbidden":
        return f"{path}: unknown field" + (nearest(str(problem["loc"][-1]), names) or f" (known: {', '.join(names)})")
    if problem["type"] == "missing":
        return f"{path}: required field is missing"
    message = _PYTHON_WORDS.sub(lambda found: _JSON_FOR[found[1]], problem["msg"].removeprefix("Value error, "))
    return f"{path}: {message}" if path else message

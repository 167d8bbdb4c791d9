"""The request a client sends: the one argument of workflow type `Delivery`, its parsing and its errors. Also the turn
of another delivery that it may begin at (`ForkedFrom`), where a retry goes on (`ResumePoint`), and the proof that it
comes from the home whose worker carries it out."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from perdure.models.backlog.request import LandingPlace, check_issue, check_text_size, drop_nulls, require_bool
from perdure.models.base import ContractHash, HistoryModel, UserInputModel, json_type_name, require_number
from perdure.models.delivery.specialists import ParentDelivery
from perdure.models.errors import InvalidRequest
from perdure.models.ids import SCHEDULED_ID, delivery_key
from perdure.models.issue import IssueName
from perdure.models.limits import (
    ATTEMPTS_MOST,
    INTEGER_MOST,
    LABEL_CHARS,
    LABELS_MOST,
    NAME_CHARS,
    PLACE_CHARS,
    TASK_QUEUE,
    TOKENS_MOST,
    USD_MOST,
)
from perdure.models.phases import Phase, Step, needs_no_request
from perdure.text import nearest, shorten


class ForkedFrom(HistoryModel):
    """The turn of another delivery before which a sibling begins, with that turn's files and conversation.

    delivery    the other one's workflow id; at: its turn, `implement:4`; checkpoint: what that turn began with
    queue       of the host that has it; head: the newest commit by then, empty: there was none
    attempt     its number among several at one plan, which that delivery begins itself and chooses from; 0: it is none
    turns, usd  taken and paid for by the other delivery before: its cost, never the sibling's; None: not known
    """

    delivery: str = Field(min_length=1, max_length=NAME_CHARS)
    at: str = Field(max_length=100)
    checkpoint: str = Field(pattern=r"^[0-9a-f]{40}$")
    queue: str = Field(min_length=1, max_length=NAME_CHARS)
    head: str = ""
    attempt: int = Field(default=0, ge=-INTEGER_MOST, le=INTEGER_MOST)
    turns: int = Field(default=0, ge=-INTEGER_MOST, le=INTEGER_MOST)
    usd: float | None = None


class RewindTargetInput(HistoryModel):
    """A turn to be taken again, by a rewind or a fork, for the host that has it.

    contract, checkpoint   of that turn; model, agent: for all steps from it on, empty: as they are
    keep                   a contract with that model and agent is stored for this delivery
    """

    delivery: str
    contract: ContractHash
    step: Step
    turn: int
    checkpoint: str
    model: str = Field(default="", max_length=NAME_CHARS)
    agent: str = Field(default="", max_length=NAME_CHARS)
    keep: bool = False


class RewindTargetResult(HistoryModel):
    """The contract from that turn on, the model of each step under it, and the models whose price nobody knows."""

    contract: ContractHash
    models: dict[str, str] = {}
    unpriced: tuple[str, ...] = ()


class ResumePoint(HistoryModel):
    """The point where a run stopped, so that another run can go on: `perdure retry` sends it back.

    It is kept in the memo `resume` of every run that ended without delivering.

    state      in the shape of `DeliveryState`
    continued  the same delivery goes on in a new run because its history grew long; nothing is prepared anew and no
               count begins again
    rewound    the turn that it went back to, where it did; asked: the words and the model with which
    """

    run_id: str
    state: dict[str, Any]
    continued: bool = False
    rewound: str = ""
    rewind_options: Annotated[dict[str, str], Field(alias="asked")] = {}


_PYTHON_WORDS = re.compile(r"\ba valid (tuple|dictionary)(?: or instance of \w+)?$")
_JSON_FOR = {"tuple": "a list", "dictionary": "an object"}
"""JSON's words for Python's types in messages to people: they send JSON."""

Label = Annotated[str, Field(min_length=1, max_length=LABEL_CHARS)]
Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARS)]


class DeliveryRequest(UserInputModel):
    """One request that shall become one pull request. Only `repository` and `request` (or `issue`) are required; null
    counts as left out.

    repository          path, file://, https://, ssh:// or scp-like address of the target, at most 2,048 bytes
    request             what is wanted, in words; at most 64 KiB; may be left out when an issue says it all, and where
                        an existing branch is only tested, published, or reviewed against a plan
    base                branch to start from and to merge into; default: the target's default branch
    phases              which of plan, build, test, review, ship; default: the repository's setting, else all
    gates               before which of plan, pull_request a person decides; beside those of the repository's settings.
                        Phase plan, or phase ship or `push`, has to be selected
    budget_usd          may lower the configured budget, and raise it up to the host's limit
    tokens              the same for tokens, read and written together; there is no limit unless one is configured
    questions           false: nobody is asked. Agents decide, and list in the pull request what they assumed; tests
                        that cannot be told from those that failed on the base make a draft
    labels              put on the pull request, beside those of the settings; a budget may be shared by label. Together
                        at most 1,800 bytes, as JSON in ASCII
    issue               an open issue of the repository that says what is wanted: "12", "#12" or its address; a number
                        is taken, too
    branch              an existing branch to work on instead of starting from the base
    plan                a plan in Markdown, used instead of making one
    spec_version        of this shape: 1
    allow_test_changes  the request itself is about tests
    fix                 true, null: red tests and blockers are mended; false: they are only reported
    push                push the branch's new commits although no pull request is asked for
    model               one model for every step, overriding configuration
    agent               one agent for every step, likewise: "built-in", or a preset that its host has
    config              text of a perdure.toml to use instead of the base branch's
    source              the submitter's checkout, for `[setup] copy`; counts with `proof` only
    proof               set by the command line and by clients that have this home's key (docs/submitting.md): without
                        it no path of the worker's host counts, but for repositories its owner's settings allow
    host                task queue of the host whose path `repository` or `source` is: it is prepared there. Set with
                        `proof`; left out: any host prepares it
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
    tokens: int | None = Field(default=None, ge=1, json_schema_extra={"maximum": TOKENS_MOST})
    questions: bool | None = None
    labels: tuple[Label, ...] = Field(default=(), max_length=LABELS_MOST)
    issue: str | None = None
    branch: Name | None = None
    plan: str | None = None
    allow_test_changes: bool = False
    # With null as its default: types of Go leave out what is false where they have no null.
    fix: bool = Field(default=True, json_schema_extra={"type": ["boolean", "null"], "default": None})
    push: bool = False
    spec_version: int = Field(default=1, ge=1, le=1)
    model: Name | None = None
    agent: Name | None = None
    attempts: int | None = Field(default=None, ge=1, le=ATTEMPTS_MOST)
    after_red: bool | None = None
    config: str | None = None
    source: str | None = Field(default=None, max_length=PLACE_CHARS)
    proof: str | None = Field(default=None, max_length=NAME_CHARS)
    host: Name | None = None
    landing: LandingPlace | None = None
    resume: ResumePoint | None = None
    forked: ForkedFrom | None = None

    @property
    def issue_number(self) -> int | None:
        """Return the number of the issue that it names, or None."""
        return IssueName.parse(self.issue).number if self.issue is not None else None

    @property
    def parent_delivery(self) -> ParentDelivery | None:
        """Return the delivery of whose plan this is a task; None: it is no task."""
        return self.landing.within if self.landing is not None else None

    @property
    def task_text(self) -> str:
        """Return the text of the plan's task that this delivery builds; empty: it builds no task."""
        return self.request if self.parent_delivery is not None else ""

    @property
    def prepare_queue(self) -> str:
        """Return the task queue on which it is prepared: that of any host, but for a task or a fork that of its
        origin's host, and else that of the host which it names."""
        if self.forked is not None:
            return self.forked.queue
        return self.parent_delivery.queue if self.parent_delivery is not None else self.host or TASK_QUEUE

    @property
    def caption(self) -> str:
        """Return the request on one line, with the issue's number before it."""
        number = self.issue_number
        return " ".join([*([f"#{number}"] if number else []), *self.request.split()])

    _drop_nulls = model_validator(mode="before")(drop_nulls)
    _require_numbers = field_validator("budget_usd", "tokens", "attempts", "spec_version", mode="before")(
        require_number
    )

    _require_bools = field_validator("questions", "after_red", "allow_test_changes", "fix", "push", mode="before")(
        require_bool
    )
    _check_request_size = field_validator("request")(check_text_size)
    _check_text_sizes = field_validator("plan", "config")(check_text_size)
    _check_issue = field_validator("issue", mode="before")(check_issue)

    @model_validator(mode="after")
    def _check_combinations(self) -> DeliveryRequest:
        """Return the request itself; raise ValueError for fields that do not go together.

        An issue must be one of the repository; without an issue a request in words is needed, unless the phases need
        none; several attempts are possible neither on an existing branch nor for a task of a plan.
        """
        if self.issue is not None:
            if not IssueName.parse(self.issue).may_belong_to(self.repository):
                raise ValueError(
                    f"issue: {shorten(self.issue, 200)} is not an issue of {shorten(self.repository, 200)}"
                )
        elif not self.request.strip() and needs_no_request(self.phases, self.branch, self.plan):
            pass
        elif "request" not in self.model_fields_set:
            raise ValueError("request: required field is missing (or name an issue)")
        elif not self.request.strip():
            raise ValueError("request: is empty: say what you want")
        if (self.attempts or 1) > 1 and (self.branch is not None or self.parent_delivery is not None):
            raise ValueError("attempts: work on a branch that is there, and a task of a plan, are built once")
        return self


def parse_request(raw: Any) -> DeliveryRequest:
    """Return the request that a client sent. Raises InvalidRequest, with one line that names the field, and the nearest
    known field for an unknown one, when it is no JSON object or not valid."""
    if not isinstance(raw, dict):
        raise InvalidRequest(
            f"expected one JSON object, got {json_type_name(raw)}",
            fix='send {"repository": …, "request": …}',
        )
    try:
        return DeliveryRequest.model_validate(raw)
    except ValidationError as error:
        raise InvalidRequest(describe_invalid_field(error, tuple(DeliveryRequest.model_fields))) from None


def first_problem(error: ValidationError) -> ErrorDetails:
    """Return the problem of a validation error that is reported: the first unknown field, which may be why others are
    missing, else the first of all."""
    return min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")


def describe_invalid_field(error: ValidationError, known_fields: tuple[str, ...]) -> str:
    """Return a validation error's first problem in one line, `field: what is wrong`; for an unknown field with the
    nearest known one, or all of them."""
    problem = first_problem(error)
    path = ".".join(str(part) for part in problem["loc"])[:100]  # it goes into history, whatever was sent
    if problem["type"] == "extra_forbidden":
        return f"{path}: unknown field" + (
            nearest(str(problem["loc"][-1]), known_fields) or f" (known: {', '.join(known_fields)})"
        )
    if problem["type"] == "missing":
        return f"{path}: required field is missing"
    message = _PYTHON_WORDS.sub(lambda match: _JSON_FOR[match[1]], problem["msg"].removeprefix("Value error, "))
    if isinstance(problem.get("ctx", {}).get("error"), UnicodeEncodeError):
        message = "has half a character (an unpaired surrogate), which is no text"
    return f"{path}: {message}" if path else message


def names_host_path(request: Mapping[str, Any]) -> bool:
    """Return whether a delivery's or a backlog's request names its repository, or a checkout, by a path of a host."""
    return bool(request.get("source")) or str(request["repository"]).startswith(("/", "~", "file:"))


CHANGED_BY_RETRY = frozenset({"proof", "resume", "budget_usd", "tokens"})
"""Fields that are not in the proof: they name no file of the host, and `perdure retry` may change them."""


def request_proof(key: bytes, delivery: str, request: Mapping[str, Any]) -> str:
    """Return the proof for one request of one delivery, an HMAC in hex by which its home's worker knows it as signed.

    key       the home's secret; request: JSON without fields that are left out or at their default
    delivery  its workflow id or its key, which give the same proof: an activity knows the key alone

    Fields that a retry changes (CHANGED_BY_RETRY) are not part of it. Whoever reads the proof in history can start that
    very request under that very id again, and nothing else.
    """
    return _sign_request(key, "request", delivery_key(delivery), request)


def schedule_proof(key: bytes, schedule: str, request: Mapping[str, Any]) -> str:
    """Return the proof for one request that a schedule of this id starts again and again, and for no other; an HMAC in
    hex.

    Whoever reads it in history can start that very request under such ids, at other times too.
    """
    return _sign_request(key, "scheduled request", schedule, request)


def is_valid_proof(claimed_proof: str | None, key: bytes, delivery: str, request: Mapping[str, Any]) -> bool:
    """Return True when a proof, made by `request_proof` or `schedule_proof` with this key, is valid for this request of
    this delivery; None is not.

    delivery  as for `request_proof`; a delivery that a schedule has started must be named by its workflow id
    """
    if claimed_proof is None:
        return False
    valid_proofs = [request_proof(key, delivery, request)]
    if (scheduled := SCHEDULED_ID.fullmatch(delivery)) is not None:
        valid_proofs.append(schedule_proof(key, scheduled[1], request))
    return any(hmac.compare_digest(claimed_proof.encode(), valid_proof.encode()) for valid_proof in valid_proofs)


def _sign_request(key: bytes, kind: str, name: str, request: Mapping[str, Any]) -> str:
    """Return the keyed hash of a request under this name, without the fields in CHANGED_BY_RETRY."""
    signed_fields = {field: value for field, value in request.items() if field not in CHANGED_BY_RETRY}
    return keyed_hash(key, kind, json.dumps([name, signed_fields], sort_keys=True).encode())


def keyed_hash(key: bytes, kind: str, data: bytes) -> str:
    """Return HMAC-SHA256 of the data in hex. `kind` is part of it: a hash of one kind never counts for another."""
    return hmac.new(key, kind.encode() + b"\0" + data, hashlib.sha256).hexdigest()

"""The request of one phase alone, checked before anything else is looked at."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path

from perdure.cli.request.options import Options
from perdure.cli.request.validation import DeliverOptions, nearest
from perdure.models.errors import BadInput
from perdure.models.limits import REQUEST_BYTES
from perdure.models.phases import Phase
from perdure.models.plan import Plan

_MENDS = (Phase.TEST, Phase.REVIEW)
"""Phases whose findings can be mended; the others find nothing."""

_TITLE_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class PhaseOptions(Options):
    """The options of `perdure run`."""

    plan: Path | None = None
    fix: bool = False


def phase_named(name: str) -> Phase:
    """BadInput with the nearest one for a phase that is none."""
    known = [phase.value for phase in Phase if phase is not Phase.LAND]  # that one comes with a backlog
    if (word := name.strip().lower()) not in known:
        raise BadInput(f"unknown phase {name[:100]!r}", where="perdure run", fix=nearest("perdure run", word, known))
    return Phase(word)


def asked_for(phase: Phase, options: PhaseOptions) -> DeliverOptions:
    """The same in the words of `deliver`. BadInput for what does not go together, and for what is missing.

    A review with `--fix` tests first: each of its fixes is tested again, and red has to mean what the fix did.
    """
    _check(phase, options)
    words = _words(options)
    plan = read_plan_file(options.plan) if options.plan is not None else None
    if not (words or options.issue or plan):
        _check_words(phase, given=options.request is not None)
    if phase is Phase.BUILD and plan is not None and not (words or options.issue):
        words = title_of(plan)
    phases = f"{Phase.TEST},{phase}" if phase is Phase.REVIEW and options.fix else str(phase)
    shared = {field.name: getattr(options, field.name) for field in fields(Options)}
    return DeliverOptions(
        **shared | {"request": words or None},
        phases=phases,
        plan=plan,
        fix=options.fix if phase in _MENDS else True,
        push=options.fix or phase is Phase.BUILD,
        wordless=True,
    )


def read_plan_file(path: Path) -> str:
    """The plan in a file: Markdown, or the JSON of `perdure run plan --json`. BadInput when there is none in it."""
    where, fix = f"--plan {path}", 'perdure run plan --request "what you want" > plan.md writes one'
    try:
        with path.open("rb") as file:
            data = file.read(REQUEST_BYTES + 1)
        text = data.decode("utf-8") if len(data) <= REQUEST_BYTES else ""
    except OSError as error:
        raise BadInput(f"the plan cannot be read: {error.strerror}", where=where, fix=fix) from None
    except UnicodeDecodeError:
        raise BadInput("the plan cannot be read: it is not UTF-8", where=where, fix=fix) from None
    if len(data) > REQUEST_BYTES:
        raise BadInput("the plan is longer than 64 KiB", where=where, fix="shorten it; name files instead of copying")
    if not text.strip():
        raise BadInput("the plan is empty", where=where, fix=fix)
    return text


def title_of(plan: str) -> str:
    """Name a plan in one line: its title, or its first line with words in it."""
    try:
        return Plan.model_validate_json(plan).title[:_TITLE_CHARS]
    except ValueError:
        lines = (line.strip().lstrip("#").strip() for line in plan.splitlines())
        return next((line for line in lines if any(c.isalnum() for c in line)), "Carry out the plan")[:_TITLE_CHARS]


def _check(phase: Phase, options: PhaseOptions) -> None:
    if options.fix and phase not in _MENDS:
        fix = f"perdure run test --fix or perdure run review --fix mends what they find; {phase} finds nothing"
        raise BadInput(f"--fix does not go with {phase}", where="--fix", fix=fix)
    if options.plan is not None and phase is Phase.PLAN:
        raise BadInput(
            "--plan does not go with plan: it makes one", where="--plan", fix="perdure run build --plan FILE"
        )
    if options.branch is None and phase in (Phase.TEST, Phase.REVIEW, Phase.SHIP):
        fix = f"perdure run {phase} --branch NAME; what is pushed there counts"
        raise BadInput(f"no branch was named: {phase} needs one to look at", where="--branch", fix=fix)


def _check_words(phase: Phase, *, given: bool) -> None:
    """There are no words at all; `given`: an empty text was."""
    if phase in (Phase.TEST, Phase.SHIP):
        return
    where = "--request" if given else ""
    what = "the request is empty" if given else "no request was given"
    match phase:
        case Phase.PLAN:
            fix = 'perdure run plan --request "what you want", --request - to read it, or --issue 12'
        case Phase.BUILD:
            fix = 'perdure run build --request "what you want", --plan FILE or --issue 12'
        case _:
            what += ": a review compares the branch with what was wanted"
            fix = 'perdure run review --request "what was wanted", --plan FILE or --issue 12'
    raise BadInput(what, where=where, fix=fix)


def _words(options: PhaseOptions) -> str:
    """Return the words of `--request`, `-` read from standard input; empty when nothing was said."""
    text = options.request or ""
    if text == "-":
        text = sys.stdin.buffer.read(REQUEST_BYTES + 1).decode(errors="replace")
    if len(text.encode()) > REQUEST_BYTES:
        fix = "shorten it; put long material into the repository and name its path"
        raise BadInput("the request is longer than 64 KiB", where="--request", fix=fix)
    return text if text.strip() else ""

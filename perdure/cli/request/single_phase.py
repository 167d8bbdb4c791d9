"""The options of `perdure run` for one phase alone, checked before anything else is looked at and converted to those of
`perdure deliver`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from perdure.adapters.system.bounded import read_text, unreadable_reason
from perdure.cli.commands.start import DeliverOptions, RunOptions
from perdure.cli.request.validation import suggest_name
from perdure.cli.screen import text_or_stdin
from perdure.models.delivery.steps import plan_title
from perdure.models.errors import BadInput
from perdure.models.limits import REQUEST_BYTES
from perdure.models.phases import Phase
from perdure.text import shorten

_FIXING_PHASES = (Phase.TEST, Phase.REVIEW)
"""Phases whose findings can be fixed; the others find nothing."""


def parse_phase(name: str) -> Phase:
    """Return the phase of that name. Raises BadInput with the most similar name where there is none."""
    names = [phase.value for phase in Phase if phase is not Phase.LAND]  # that one comes with a backlog
    if (value := name.strip().lower()) not in names:
        raise BadInput(
            f"unknown phase {shorten(name, 100)!r}", where="perdure run", fix=suggest_name("perdure run", value, names)
        )
    return Phase(value)


def to_deliver_options(phase: Phase, options: RunOptions) -> DeliverOptions:
    """Convert the options of `run` to those of `deliver`; read the plan's file and `--request -`.

    Raises BadInput for options that do not go together, and for a request that is missing. A review with `--fix` tests
    first: each of its fixes is tested again, and red has to mean what the fix did.
    """
    _check_options(phase, options)
    text = _read_request_text(options)
    plan = read_plan_file(options.plan) if options.plan is not None else None
    if not (text or options.issue or plan):
        _require_text(phase, is_empty_text=options.request is not None)
    if phase is Phase.BUILD and plan is not None and not (text or options.issue):
        text = plan_title(plan)
    names = {field.name for field in fields(RunOptions)} & {field.name for field in fields(DeliverOptions)}
    changed_options = {
        "request": text or None,
        "phases": f"{Phase.TEST},{phase}" if phase is Phase.REVIEW and options.fix else str(phase),
        "plan": plan,
        "fix": options.fix if phase in _FIXING_PHASES else True,
        "push": options.fix or phase is Phase.BUILD,
        "wordless": True,
    }
    return DeliverOptions(**{name: getattr(options, name) for name in names} | changed_options)


def read_plan_file(path: Path) -> str:
    """Return the plan in a file: Markdown, or the JSON of `perdure run plan --json`.

    Raises BadInput for a file that cannot be read, is not UTF-8, is empty or longer than 64 KiB.
    """
    where, fix = f"--plan {path}", 'perdure run plan --request "what you want" > plan.md writes one'
    try:
        text = read_text(path, REQUEST_BYTES)
    except (OSError, ValueError) as error:
        raise BadInput(f"the plan cannot be read: {unreadable_reason(error)}", where=where, fix=fix) from None
    if not text.strip():
        raise BadInput("the plan is empty", where=where, fix=fix)
    return text


def _check_options(phase: Phase, options: RunOptions) -> None:
    """Raise BadInput for options that this phase does not have, and for a phase that needs `--branch` without one."""
    if options.fix and phase not in _FIXING_PHASES:
        fix = f"perdure run test --fix or perdure run review --fix mends what they find; {phase} finds nothing"
        raise BadInput(f"--fix does not go with {phase}", where="--fix", fix=fix)
    if options.plan is not None and phase is Phase.PLAN:
        raise BadInput(
            "--plan does not go with plan: it makes one", where="--plan", fix="perdure run build --plan FILE"
        )
    if options.branch is None and phase in (Phase.TEST, Phase.REVIEW, Phase.SHIP):
        fix = f"perdure run {phase} --branch NAME; what is pushed there counts"
        raise BadInput(f"no branch was named: {phase} needs one to look at", where="--branch", fix=fix)


def _require_text(phase: Phase, *, is_empty_text: bool) -> None:
    """Raise BadInput where a phase needs a request and there is no text, issue or plan; test and ship need none.

    is_empty_text  `--request` was given, but is empty: the message says so
    """
    if phase in (Phase.TEST, Phase.SHIP):
        return
    where = "--request" if is_empty_text else ""
    what = "the request is empty" if is_empty_text else "no request was given"
    match phase:
        case Phase.PLAN:
            fix = 'perdure run plan --request "what you want", --request - to read it, or --issue 12'
        case Phase.BUILD:
            fix = 'perdure run build --request "what you want", --plan FILE or --issue 12'
        case _:
            what += ": a review compares the branch with what was wanted"
            fix = 'perdure run review --request "what was wanted", --plan FILE or --issue 12'
    raise BadInput(what, where=where, fix=fix)


def _read_request_text(options: RunOptions) -> str:
    """Return the text of `--request`, of standard input for `-`; empty when there is none, or only spaces.

    Raises BadInput when it is longer than 64 KiB.
    """
    text = text_or_stdin(options.request or "", REQUEST_BYTES)
    if len(text.encode()) > REQUEST_BYTES:
        fix = "shorten it; put long material into the repository and name its path"
        raise BadInput("the request is longer than 64 KiB", where="--request", fix=fix)
    return text if text.strip() else ""

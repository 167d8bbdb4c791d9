"""`perdure run`: one phase alone, on a branch that may be anybody's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure import secrets
from perdure.cli.request import options
from perdure.cli.request.schedule import AtOption, EveryOption, Timed, schedule_delivery, timed
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out
from perdure.models.errors import PerdureError
from perdure.models.phases import Phase
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.cli.request.single_phase import PhaseOptions
    from perdure.client import Delivery, Submitted
    from perdure.models.result import DeliveryResult


def run(
    context: typer.Context,
    phase: Annotated[str, typer.Argument(metavar="PHASE", help="plan, build, test, review or ship.")],
    request: Annotated[
        str | None, typer.Option("--request", metavar="TEXT|-", help="What is wanted; - reads it from standard input.")
    ] = None,
    issue: Annotated[str | None, typer.Option("--issue", metavar="N|URL", help="An open issue says it.")] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="A plan to build, or to review against.")
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="test, review: mend what is found, and push that to the branch.")
    ] = False,
    repo: Annotated[
        str | None,
        typer.Option("--repo", metavar="PATH|URL", help="As for deliver; default: the one you are in."),
    ] = None,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="BRANCH", help="An existing one, as it is on the remote.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="BRANCH", help="To compare with and merge into; default: the default branch."),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="NAME", help="Name of the delivery.")] = None,
    budget: options.Budget = None,
    tokens: options.Tokens = None,
    model: options.Model = None,
    agent: options.Agent = None,
    config: options.ConfigFile = None,
    allow_test_changes: options.AllowTestChanges = False,
    gate: options.Gates = None,
    label: options.Labels = None,
    no_questions: options.NoQuestions = False,
    new: options.New = False,
    at: AtOption = None,
    every: EveryOption = None,
    detach: options.Detach = False,
    no_wait: options.NoWait = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Carry out one phase alone: plan, build, test, review or ship.

    plan prints a plan. build commits and pushes. test and review say what they found and stop, or mend it with --fix.
    ship opens a pull request for the branch as it is. Exit code 1: red tests, blockers, or not done.
    """
    from perdure.cli.look.watch import detached
    from perdure.cli.request.single_phase import PhaseOptions, phase_named

    wanted = phase_named(phase)
    typed = PhaseOptions.typed(context.params)
    screen = Screen(json=json, aside=wanted is Phase.PLAN and not detach)
    submitted: list[Submitted] = []
    later = timed(at, every)
    try:
        raise typer.Exit(carry_out(_run(wanted, typed, later, screen, submitted, detach=detach, wait=not no_wait)))
    except KeyboardInterrupt:
        if not submitted:
            raise
        raise detached(screen, submitted[0].delivery.id) from None


async def _run(
    phase: Phase,
    typed: PhaseOptions,
    later: Timed | None,
    screen: Screen,
    submitted: list[Submitted],
    *,
    detach: bool,
    wait: bool,
) -> int:
    import asyncio

    from perdure.cli.request.single_phase import asked_for
    from perdure.cli.request.validation import take_in

    asked = asked_for(phase, typed)
    taken = await asyncio.to_thread(take_in, asked, secrets.environment())

    from perdure.cli.request.submit import hand_in

    # Not an issue's own id: that one is the delivery which closes it.
    name = f"{phase} {typed.branch or taken.request.caption}"
    if later is not None:
        await schedule_delivery(taken, asked, later, screen, name=name)
        return 0
    found = await hand_in(taken, asked, screen, submitted, name=name, detach=detach)
    return 0 if detach else await _follow(phase, found.delivery, screen, wait=wait)


async def _follow(phase: Phase, delivery: Delivery, screen: Screen, *, wait: bool) -> int:
    """Watch it to its end, and say what it found."""
    from perdure.cli.look.closing import closing
    from perdure.cli.look.watch import EXIT_WAITS, Watcher, coming_back, exit_code
    from perdure.models.result import TestsStatus

    watcher = Watcher(delivery, screen)
    result = await watcher.watch(wait=wait)
    if result is None:
        for line in coming_back(delivery.id, "Left", "waits"):
            screen.say(line)
        return EXIT_WAITS
    found = await _found(delivery, result, screen)
    if screen.json:
        screen.data(_json(phase, result, found))
    else:
        _tell(screen, phase, found)
        screen.lines(["", *closing(result, watcher.elapsed_s)])
    if phase is Phase.TEST and result.tests.status is TestsStatus.NONE:
        raise PerdureError(
            "nothing was tested: no test command is known",
            where=f"perdure.toml on {result.base}",
            fix='perdure init finds one and writes it down, or: [[test]] name = "unit", command = "…"',
        )
    return exit_code(result)


async def _found(delivery: Delivery, result: DeliveryResult, screen: Screen) -> dict[str, str]:
    """Name what the phase wrote down: plan, report, review and findings. It is kept on the delivery's host."""
    links = {
        "plan": result.plan,
        "report": result.tests.report,
        "review": result.review.report,
        "findings": result.review.findings,
    }
    found = {}
    for name, link in links.items():
        if not link:
            continue
        try:
            found[name] = (await delivery.artifact(link)).decode(errors="replace")
        except PerdureError as error:
            said = one_line(error.what)
            screen.say(f"! {name} cannot be read just now: {said}; perdure report {delivery.id} shows it later")
    return found


def _tell(screen: Screen, phase: Phase, found: dict[str, str]) -> None:
    from perdure.cli.look.found import plan_text, report_lines, review_lines
    from perdure.models.report import Findings, Review, TestReport

    if phase is Phase.PLAN and "plan" in found:
        print(plan_text(found["plan"]), end="", flush=True)
    if phase in (Phase.TEST, Phase.REVIEW) and "report" in found:
        screen.lines(["", *report_lines(TestReport.model_validate_json(found["report"]))])
    if phase is Phase.REVIEW and "review" in found:
        findings = Findings.model_validate_json(found["findings"]) if "findings" in found else None
        screen.lines(["", *review_lines(Review.model_validate_json(found["review"]), findings)])


def _json(phase: Phase, result: DeliveryResult, found: dict[str, str]) -> Any:
    """The result, as `deliver` gives it, with `found` beside it; for `plan` the plan itself, which `--plan` takes."""
    import json

    from perdure.models.plan import Plan

    if phase is Phase.PLAN and "plan" in found:
        return Plan.model_validate_json(found["plan"]).model_dump_json(indent=2)
    names = {Phase.TEST: ("report",), Phase.REVIEW: ("report", "review", "findings")}.get(phase, ())
    beside = {name: json.loads(found[name]) for name in names if name in found}
    return result.model_dump(mode="json") | ({"found": beside} if beside else {})

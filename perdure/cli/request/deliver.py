"""`perdure deliver`: submit one request and watch it become a pull request; `perdure run`: one phase alone, on a branch
that may be anybody's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure import secrets
from perdure.cli.look.schedules import AtOption, EveryOption, StartTime, parse_start_time, schedule_delivery
from perdure.cli.request import options
from perdure.cli.screen import Screen
from perdure.cli.session import run_coroutine
from perdure.models.errors import PerdureError
from perdure.models.phases import Phase
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.cli.request.single_phase import PhaseOptions
    from perdure.cli.request.validation import DeliverOptions
    from perdure.client import Delivery, Submission
    from perdure.models.delivery.result import DeliveryResult


def deliver(
    context: typer.Context,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What you want, in your own words.")] = None,
    request: Annotated[
        str | None, typer.Option("--request", metavar="TEXT|-", help="The same; - reads it from standard input.")
    ] = None,
    issue: Annotated[
        str | None,
        typer.Option("--issue", metavar="N|URL", help="An open issue says what you want; #12 in TEXT names it too."),
    ] = None,
    repo: Annotated[
        str | None,
        typer.Option(
            "--repo", metavar="PATH|URL", help="A path with an origin means that origin; default: the one you are in."
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="BRANCH", help="To start from and merge into; default: the default branch."),
    ] = None,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="BRANCH", help="An existing one to work on instead of the base.")
    ] = None,
    phases: Annotated[
        str | None, typer.Option("--phases", metavar="LIST", help="Some of plan,build,test,review,ship.")
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="NAME", help="Name of the delivery: the same name is never delivered twice."),
    ] = None,
    budget: options.Budget = None,
    tokens: options.Tokens = None,
    model: options.Model = None,
    agent: options.Agent = None,
    attempts: options.Attempts = None,
    after_red: options.AfterRed = False,
    config: options.ConfigFile = None,
    allow_test_changes: options.AllowTestChanges = False,
    at: AtOption = None,
    every: EveryOption = None,
    gate: options.Gates = None,
    label: options.Labels = None,
    no_questions: options.NoQuestions = False,
    new: options.New = False,
    detach: options.Detach = False,
    no_wait: options.NoWait = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Turn one request into one tested, reviewed pull request.

    Ctrl-C leaves, the work goes on. The same words, issue or --id again come back to it; with --new the same words
    start another.
    """
    from perdure.cli.look.watch import print_detached
    from perdure.cli.request.validation import DeliverOptions

    deliver_options = DeliverOptions.from_params(context.params)
    screen = Screen(json=json)
    submitted: list[Submission] = []
    start_time = parse_start_time(at, every)
    try:
        raise typer.Exit(
            run_coroutine(
                _submit_and_follow(deliver_options, start_time, screen, submitted, detach=detach, wait=not no_wait)
            )
        )
    except KeyboardInterrupt:
        if not submitted:
            raise
        raise print_detached(screen, submitted[0].delivery.id) from None


async def _submit_and_follow(
    deliver_options: DeliverOptions,
    start_time: StartTime | None,
    screen: Screen,
    submitted: list[Submission],
    *,
    detach: bool,
    wait: bool,
) -> int:
    """Check and submit the request, or make its schedule; follow the delivery unless `detach`, and return the exit
    code.

    The submission is appended to `submitted` as soon as it exists: from then on Ctrl-C only leaves.
    """
    import asyncio

    from perdure.cli.request.validation import check_request

    checked = await asyncio.to_thread(check_request, deliver_options, secrets.environment())

    # Imported only now: loading these takes longer than finding a mistake in the request.
    from perdure.cli.look.watch import follow_delivery
    from perdure.cli.request.submit import submit_delivery

    if start_time is not None:
        await schedule_delivery(checked, deliver_options, start_time, screen)
        return 0
    submission = await submit_delivery(checked, deliver_options, screen, submitted, detach=detach)
    return 0 if detach else await follow_delivery(submission.delivery, screen, wait=wait)


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
    from perdure.cli.look.watch import print_detached
    from perdure.cli.request.single_phase import PhaseOptions, parse_phase

    wanted_phase = parse_phase(phase)
    phase_options = PhaseOptions.from_params(context.params)
    screen = Screen(json=json, to_stderr=wanted_phase is Phase.PLAN and not detach)
    submitted: list[Submission] = []
    start_time = parse_start_time(at, every)
    try:
        raise typer.Exit(
            run_coroutine(
                _run_phase(wanted_phase, phase_options, start_time, screen, submitted, detach=detach, wait=not no_wait)
            )
        )
    except KeyboardInterrupt:
        if not submitted:
            raise
        raise print_detached(screen, submitted[0].delivery.id) from None


async def _run_phase(
    phase: Phase,
    phase_options: PhaseOptions,
    start_time: StartTime | None,
    screen: Screen,
    submitted: list[Submission],
    *,
    detach: bool,
    wait: bool,
) -> int:
    """Check and submit the request for one phase, or make its schedule; follow it unless `detach`, return the exit
    code.

    The submission is appended to `submitted` as soon as it exists: from then on Ctrl-C only leaves.
    """
    import asyncio

    from perdure.cli.request.single_phase import to_deliver_options
    from perdure.cli.request.validation import check_request

    deliver_options = to_deliver_options(phase, phase_options)
    checked = await asyncio.to_thread(check_request, deliver_options, secrets.environment())

    from perdure.cli.request.submit import submit_delivery

    # Not made from the issue alone: that id belongs to the delivery which closes the issue.
    name = f"{phase} {phase_options.branch or checked.request.caption}"
    if start_time is not None:
        await schedule_delivery(checked, deliver_options, start_time, screen, name=name)
        return 0
    submission = await submit_delivery(checked, deliver_options, screen, submitted, name=name, detach=detach)
    return 0 if detach else await _follow_phase(phase, submission.delivery, screen, wait=wait)


async def _follow_phase(phase: Phase, delivery: Delivery, screen: Screen, *, wait: bool) -> int:
    """Follow the delivery to its end, print what the phase wrote, and return the exit code.

    With `wait` False, returns EXIT_WAITS as soon as it waits for a person. Raises PerdureError when phase test had no
    test command.
    """
    from perdure.cli.look.progress_lines import closing_lines
    from perdure.cli.look.watch import EXIT_WAITS, DeliveryWatcher, come_back_lines, exit_code
    from perdure.models.delivery.result import TestsStatus

    watcher = DeliveryWatcher(delivery, screen)
    result = await watcher.watch(wait=wait)
    if result is None:
        for line in come_back_lines(delivery.id, "Left", "waits"):
            screen.say(line)
        return EXIT_WAITS
    artifacts = await _fetch_artifacts(delivery, result, screen)
    if screen.json:
        screen.print_json(_result_json(phase, result, artifacts))
    else:
        _print_artifacts(screen, phase, artifacts)
        screen.print_lines(["", *closing_lines(result, watcher.elapsed_s)])
    if phase is Phase.TEST and result.tests.status is TestsStatus.NONE:
        raise PerdureError(
            "nothing was tested: no test command is known",
            where=f"perdure.toml on {result.base}",
            fix='perdure init finds one and writes it down, or: [[test]] name = "unit", command = "…"',
        )
    return exit_code(result)


async def _fetch_artifacts(delivery: Delivery, result: DeliveryResult, screen: Screen) -> dict[str, str]:
    """Fetch what the phase wrote, from the delivery's host: the texts of plan, report, review and findings, by name.

    What cannot be read now is left out and printed as a line.
    """
    links = {
        "plan": result.plan,
        "report": result.tests.report,
        "review": result.review.report,
        "findings": result.review.findings,
    }
    artifacts = {}
    for name, link in links.items():
        if not link:
            continue
        try:
            artifacts[name] = (await delivery.artifact(link)).decode(errors="replace")
        except PerdureError as error:
            reason = one_line(error.what)
            screen.say(f"! {name} cannot be read just now: {reason}; perdure report {delivery.id} shows it later")
    return artifacts


def _print_artifacts(screen: Screen, phase: Phase, artifacts: dict[str, str]) -> None:
    """Print the phase's artifacts: the plan on standard output; test report, review and findings as lines."""
    from perdure.cli.look.findings_text import plan_text, report_lines, review_lines
    from perdure.models.checks.report import Findings, Review, TestReport

    if phase is Phase.PLAN and "plan" in artifacts:
        print(plan_text(artifacts["plan"]), end="", flush=True)
    if phase in (Phase.TEST, Phase.REVIEW) and "report" in artifacts:
        screen.print_lines(["", *report_lines(TestReport.model_validate_json(artifacts["report"]))])
    if phase is Phase.REVIEW and "review" in artifacts:
        findings = Findings.model_validate_json(artifacts["findings"]) if "findings" in artifacts else None
        screen.print_lines(["", *review_lines(Review.model_validate_json(artifacts["review"]), findings)])


def _result_json(phase: Phase, result: DeliveryResult, artifacts: dict[str, str]) -> Any:
    """Return what `--json` prints: the result as for `deliver`, with the phase's artifacts under `found`.

    For phase plan it is the plan alone, as JSON text that `--plan` takes.
    """
    import json

    from perdure.models.delivery.steps import Plan

    if phase is Phase.PLAN and "plan" in artifacts:
        return Plan.model_validate_json(artifacts["plan"]).model_dump_json(indent=2)
    names = {Phase.TEST: ("report",), Phase.REVIEW: ("report", "review", "findings")}.get(phase, ())
    extra = {name: json.loads(artifacts[name]) for name in names if name in artifacts}
    return result.model_dump(mode="json") | ({"found": extra} if extra else {})

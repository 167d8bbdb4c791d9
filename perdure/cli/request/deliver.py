"""`perdure deliver`: submit one request and watch it become a pull request; `perdure run`: one phase alone, on a branch
that may be anybody's."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from perdure import secrets
from perdure.cli.commands.start import DeliverOptions, RunOptions
from perdure.cli.event_loop import run_coroutine
from perdure.cli.request.single_phase import parse_phase, to_deliver_options
from perdure.cli.request.start_time import StartTime, parse_start_time
from perdure.cli.request.validation import check_request
from perdure.cli.screen import Screen
from perdure.models.checks.report import Findings, Review, TestReport
from perdure.models.delivery.result import DeliveryResult, TestsStatus
from perdure.models.delivery.steps import Plan
from perdure.models.errors import PerdureError
from perdure.models.phases import Phase
from perdure.text import one_line, shell_word

if TYPE_CHECKING:
    from perdure.client import Delivery, Submission


def deliver(options: DeliverOptions) -> None:
    """Submit one request, or attach to the delivery of the same one, and follow it until it ends.

    With `detach` it leaves at once; with `at` or `every` a schedule is made instead. Starts server and worker where
    they are missing. Raises typer.Exit with the exit code; after Ctrl-C it says how to come back and exits with 130.
    Raises BadInput or InvalidRequest, before anything is started, when the request is not valid.
    """
    _submit_to_end(options, Screen(json=options.json))


def run(options: RunOptions) -> None:
    """Carry out one phase alone, plan, build, test, review or ship, and print what it wrote.

    Submits and follows as `deliver` does, and exits in the same ways. A plan alone goes to standard output. Raises
    BadInput for an unknown phase and options that it does not have, and PerdureError when phase test had no test
    command.
    """
    phase = parse_phase(options.phase)
    screen = Screen(json=options.json, to_stderr=phase is Phase.PLAN and not options.detach)
    _submit_to_end(to_deliver_options(phase, options), screen, phase)


def _submit_to_end(options: DeliverOptions, screen: Screen, phase: Phase | None = None) -> NoReturn:
    """Submit the request, of one phase alone or of all, and follow it; raise typer.Exit with the exit code at its end.

    After Ctrl-C it says how to come back and exits with 130; before there is a submission KeyboardInterrupt is raised.
    Raises what `_submit_and_follow` raises, and BadInput for a wrong `at` or `every`.
    """
    submitted: list[Submission] = []
    start_time = parse_start_time(options.at, options.every)
    try:
        raise typer.Exit(run_coroutine(_submit_and_follow(options, screen, phase, start_time, submitted)))
    except KeyboardInterrupt:
        if not submitted:
            raise
        # Imported only now: loading it takes longer than finding a mistake in the request.
        from perdure.cli.look.watch import print_detached

        raise print_detached(screen, submitted[0].delivery.id) from None


async def _submit_and_follow(
    options: DeliverOptions,
    screen: Screen,
    phase: Phase | None,
    start_time: StartTime | None,
    submitted: list[Submission],
) -> int:
    """Check and submit the request, or make its schedule; follow the delivery unless `--detach`, and return the exit
    code.

    The submission is appended to `submitted` as soon as it exists: from then on Ctrl-C only leaves. Raises BadInput or
    InvalidRequest when the request is not valid, TemporalUnreachable when the server goes away for good, and
    PerdureError when phase test had no test command.
    """
    checked = await asyncio.to_thread(check_request, options, secrets.environment())

    # Imported only now: loading these takes longer than finding a mistake in the request.
    from perdure.cli.look.schedules import schedule_delivery
    from perdure.cli.look.watch import follow_delivery
    from perdure.cli.request.submit import submit_delivery

    # Of a phase not made from the issue alone: that id belongs to the delivery which closes the issue.
    name = f"{phase} {options.branch or checked.request.caption}" if phase is not None else ""
    if start_time is not None:
        await schedule_delivery(checked, options, start_time, screen, name=name)
        return 0
    delivery = (await submit_delivery(checked, options, screen, submitted, name=name)).delivery
    if options.detach:
        return 0
    if phase is None:
        return await follow_delivery(delivery, screen, wait=not options.no_wait)
    return await _follow_phase(phase, delivery, screen, wait=not options.no_wait)


async def _follow_phase(phase: Phase, delivery: Delivery, screen: Screen, *, wait: bool) -> int:
    """Follow the delivery to its end, print what the phase wrote, and return the exit code.

    With `wait` False, returns EXIT_WAITS as soon as it waits for anything. Raises PerdureError when phase test had no
    test command, or the delivery cannot be followed.
    """
    # Imported only now: see above.
    from perdure.cli.look.watch import EXIT_WAITS, DeliveryWatcher, come_back_lines, exit_code
    from perdure.render.progress_lines import closing_lines

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
            screen.say(
                f"! {name} cannot be read just now: {reason}; perdure report {shell_word(delivery.id)} shows it later"
            )
    return artifacts


def _print_artifacts(screen: Screen, phase: Phase, artifacts: dict[str, str]) -> None:
    """Print the phase's artifacts: the plan on standard output; test report, review and findings as lines."""
    # Imported only now: see above.
    from perdure.render.findings_text import plan_text, report_lines, review_lines

    if phase is Phase.PLAN and "plan" in artifacts:
        print(plan_text(artifacts["plan"]), end="", flush=True)
    if phase in (Phase.TEST, Phase.REVIEW) and "report" in artifacts:
        screen.print_lines(["", *report_lines(TestReport.model_validate_json(artifacts["report"]))])
    if phase is Phase.REVIEW and "review" in artifacts:
        findings = Findings.model_validate_json(artifacts["findings"]) if "findings" in artifacts else None
        screen.print_lines(["", *review_lines(Review.model_validate_json(artifacts["review"]), findings)])


def _result_json(phase: Phase, result: DeliveryResult, artifacts: dict[str, str]) -> Any:
    """Return what `--json` prints: the result as for `deliver`, with the phase's artifacts under `found`.

    For phase plan, where the plan could be read, it is that alone, as JSON text that `--plan` takes.
    """

    if phase is Phase.PLAN and "plan" in artifacts:
        return Plan.model_validate_json(artifacts["plan"]).model_dump_json(indent=2)
    names = {Phase.TEST: ("report",), Phase.REVIEW: ("report", "review", "findings")}.get(phase, ())
    extra = {name: json.loads(artifacts[name]) for name in names if name in artifacts}
    return result.model_dump(mode="json") | ({"found": extra} if extra else {})

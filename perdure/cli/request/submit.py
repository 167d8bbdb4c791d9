"""Submitting a checked request: what it needs is started, and what begins is printed. Used by `deliver` and `run`;
starts of backlogs and schedules use its parts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure import __version__, secrets
from perdure.adapters.git.command import redact
from perdure.adapters.git.target import list_not_included
from perdure.adapters.repository.config import lowered_budget, merge_config
from perdure.adapters.system.home import Home
from perdure.cli.commands.options import option_name
from perdure.cli.request.issue import delivery_exists, own_worker_publishes
from perdure.cli.screen import Screen
from perdure.client import BacklogSubmission, Perdure, Submission
from perdure.local.connect import connect_to_temporal, no_worker_reason, web_ui_url
from perdure.local.up import ensure_running
from perdure.models.delivery.request import DeliveryRequest, parse_request
from perdure.models.errors import InvalidRequest
from perdure.models.limits import DECISION_ACCEPTED
from perdure.models.rules.inbox import ignored_request_fields
from perdure.render.formatting import with_tilde
from perdure.render.progress_lines import Header
from perdure.text import format_money, shell_word, short_sha, shorten

if TYPE_CHECKING:
    from perdure.cli.commands.start import DeliverOptions
    from perdure.cli.request.validation import CheckedRequest


async def submit_delivery(
    checked: CheckedRequest,
    options: DeliverOptions,
    screen: Screen,
    submitted: list[Submission],
    *,
    name: str = "",
) -> Submission:
    """Start the delivery, or attach to the one of that id or the same text; print the header and return the submission.

    Starts server and worker where they are missing. With `--detach`, waits until a worker has accepted it, for at most
    DECISION_ACCEPTED. Raises InvalidRequest for an issue that cannot be delivered, unless a delivery of it exists;
    BadInput when the id is another request's or that delivery ended otherwise, or the running worker has other keys.

    name       what its id is made from, where that is neither the issue nor the text
    submitted  the submission is appended to it as soon as it exists: from then on Ctrl-C only leaves
    """
    home = Home.find()
    if (refusal := checked.work.refusal) is not None and not await delivery_exists(
        home, options.id or checked.issue_id
    ):
        raise refusal
    perdure = await start_worker_and_connect(checked, screen)
    # Whoever stays sees what becomes of it; whoever leaves should know whether a worker has it.
    patience = DECISION_ACCEPTED if options.detach else None
    submission = await perdure.submit(
        checked.request, options.id, new=options.new, name=name, branch_commit=checked.tip, patience=patience
    )
    submitted.append(submission)
    restart_hint = "" if options.id is not None else "; --new starts another"
    id, watch_command = submission.delivery.id, f"perdure watch {shell_word(submission.delivery.id)}"
    await print_start(
        checked,
        id,
        submission,
        screen,
        _budget_texts(checked),
        watch_command=watch_command,
        restart_hint=restart_hint,
        detach=options.detach,
    )
    if submission.attached and (line := await _ignored_options_line(submission, checked.request)):
        screen.say(line)
    if options.detach and screen.json:
        screen.print_json({"delivery_id": id, **submission_json(submission)})
    return submission


async def _ignored_options_line(submission: Submission, sent: DeliveryRequest) -> str:
    """Return one line that names the options of a request that do not take hold, because its delivery exists already
    and was begun without them; empty: there are none."""
    try:
        existing = parse_request(await submission.delivery.request())
    except InvalidRequest:  # of somebody else's program: it has failed for that
        return ""
    texts = []
    for field in ignored_request_fields(existing, sent):
        value = getattr(sent, field)
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        has_value = not isinstance(value, bool) and field not in ("config", "plan")
        texts.append(option_name(field) + (f" {shorten(shown, 60)}" if has_value else ""))
    return f"! {', '.join(texts)} did not count: it goes on as it was begun" if texts else ""


async def print_start(
    checked: CheckedRequest,
    id: str,
    submission: Submission | BacklogSubmission,
    screen: Screen,
    limits: Sequence[str],
    *,
    watch_command: str,
    restart_hint: str,
    detach: bool,
) -> None:
    """Print the header (not with --json), whether it existed already, and that no worker has accepted it, when none
    has.

    watch_command  the command that shows it later, printed where `detach`
    restart_hint   what starts another one, printed after the note that it existed
    """
    if not screen.json:
        page = await web_ui_url(Home.find(), id)
        watching = [watch_command if detach else "Ctrl-C leaves; the work goes on", *([page] if page else [])]
        header = await asyncio.to_thread(header_lines, checked, id, watching, limits)
        screen.print_lines(header if detach else [*header, ""])
    if submission.attached:
        screen.say(f"{id} is already there: nothing new was started{restart_hint}")
    if submission.accepted is False:
        reason = "no worker has taken it yet: it begins when one runs" if checked.elsewhere else no_worker_reason()
        screen.say(f"{id} is recorded; {reason}")


def submission_json(submission: Submission | BacklogSubmission) -> dict[str, bool | None]:
    """Return the fields of `--json` that say whether it existed already, and whether a worker has accepted it."""
    return {"attached": True} if submission.attached else {"attached": False, "accepted": submission.accepted}


async def start_worker_and_connect(checked: CheckedRequest, screen: Screen) -> Perdure:
    """Start this home's server and worker where they are missing, and return a connected client.

    When TEMPORAL_* names another server, nothing is started: its workers are somebody else's. The client signs requests
    with the home's key, when there is a home. Raises BadInput when the running worker has another model key or forge
    token than this process, TemporalUnreachable when the server does not answer, and PerdureError when one of the two
    does not start.
    """
    home = Home.find()
    if not checked.elsewhere:
        await ensure_running(home, screen.say, hosted=own_worker_publishes(checked.target.url, secrets.environment()))
    # Workers elsewhere may be this home's all the same; but no home is made for their sake.
    client = await connect_to_temporal(home, start=False, say=screen.say)
    has_home = not checked.elsewhere or home.root.is_dir()
    return Perdure(client, home.key(), home.queue()) if has_home else Perdure(client)


def header_lines(checked: CheckedRequest, id: str, watching: Sequence[str], limits: Sequence[str]) -> list[str]:
    """Return the first lines about a submitted request: repository, base, issue, what is not included, settings.

    Reads the checkout for what is not committed or pushed. `watching`: how to follow it; `limits`: texts about budget
    and size, shown after the settings.
    """
    checkout, target = checked.target.checkout, redact(checked.target.url)
    has_origin = checkout is not None and str(checkout) != checked.target.url
    start_branch = checked.request.branch or checked.base
    return Header(
        version=__version__,
        delivery_id=id,
        checkout=with_tilde(checkout) if checkout is not None and has_origin else "",
        target=f"origin {target}" if has_origin else target,
        base=base_line(checked),
        issue=checked.work.issue_label,
        not_included=list_not_included(checkout, start_branch, checked.base, checked.target.heads.branches)
        if checkout is not None
        else (),
        settings=[checked.file, *([] if checked.elsewhere else [_sandbox_label(checked.host.sandbox)]), *limits],
        watching=watching,
    ).lines()


def _budget_texts(checked: CheckedRequest) -> list[str]:
    """Return the budget that counts as a list of one text; empty where the workers are elsewhere and the request has
    none."""
    if checked.elsewhere:
        return [f"budget {format_money(checked.request.budget_usd)}"] if checked.request.budget_usd is not None else []
    limits = merge_config(
        host=checked.host, env=os.environ, repository=checked.repository_config, request=checked.request
    ).config.limits
    lowered = lowered_budget(checked.request, checked.host)
    return [f"budget {format_money(limits.budget_usd)}", *([f"! {lowered}"] if lowered else [])]


def base_line(checked: CheckedRequest) -> str:
    """Return the header's line about the base: `main at 4be1c02`, or `feature at 0d77a1e, against main at 4be1c02`."""
    if checked.target.empty:
        return f"empty: {checked.base} begins with an empty commit, pushed before the delivery's branch"
    base = f"{checked.base} at {short_sha(checked.base_sha)}"
    branch = checked.request.branch
    branch_tip = (
        f"{branch} at {short_sha(checked.target.heads.branches[branch])}, against " if branch is not None else ""
    )
    return f"{branch_tip}{base}, asked just now"


def _sandbox_label(grade: str) -> str:
    names = {"full": "sandbox bubblewrap", "reduced": "sandbox REDUCED (Landlock)", "off": "sandbox OFF"}
    return names.get(grade, grade)

"""`perdure backlog start`: its request is checked completely before anything is started, then it is submitted or
scheduled. Files of items are read here for `add`, `edit` and the demo as well."""

from __future__ import annotations

import asyncio
import sys
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from perdure import secrets
from perdure.adapters.system.bounded import decode_text, read_text, unreadable_reason
from perdure.adapters.system.zones import zone_offsets
from perdure.cli.backlog.checks import (
    check_against_repository,
    check_config,
    find_issue_forge,
    ignored_settings_line,
    list_open_issues,
    missing_issues_line,
    without_proposed_issues,
)
from perdure.cli.commands.backlog import BacklogOptions
from perdure.cli.commands.options import option_name
from perdure.cli.commands.start import DeliverOptions
from perdure.cli.event_loop import run_coroutine
from perdure.cli.request.start_time import StartTime, parse_start_time
from perdure.cli.request.validation import (
    CheckedRequest,
    check_id,
    check_request,
    parse_options,
)
from perdure.cli.screen import Screen, text_or_stdin
from perdure.client import BacklogSubmission
from perdure.client.yaml_files import BACKLOG_BYTES, BacklogFile, parse_backlog_file
from perdure.models.backlog.request import BacklogRequest
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.ids import repository_name, slug
from perdure.models.limits import DECISION_ACCEPTED, REQUEST_BYTES
from perdure.models.rules.admission import backlog_refusal
from perdure.models.rules.backlog import parse_backlog
from perdure.text import format_count, format_money, shell_word

_ID_CHARS = 40
DECOMPOSED_ID = "items"
"""Id of the item that `--request` becomes, until its parts take its place: `perdure approve night/items`."""

_PLACEHOLDER_REQUEST = "a backlog"
"""Text of the request with which the backlog's repository and settings are checked: it must not contain an issue's
number."""


def start(options: BacklogOptions) -> None:
    """Check a backlog's request and start it, attach to the same one, or with `at` or `every` make a schedule of it.

    Follows it until it ends unless `detach`. Starts server and worker where they are missing. Raises typer.Exit with
    the exit code; after Ctrl-C it says how to come back and exits with 130. Raises BadInput or InvalidRequest, before
    anything is started, when the request or a time is not valid.
    """
    if options.request is not None:
        options = replace(options, request=text_or_stdin(options.request, REQUEST_BYTES))
    screen, start_time = Screen(json=options.json), parse_start_time(options.at, options.every)
    submitted: list[BacklogSubmission] = []

    async def work() -> int:
        checked = await asyncio.to_thread(
            check_backlog, options, secrets.environment(), is_scheduled=start_time is not None
        )
        if start_time is not None:
            return await schedule_backlog(checked, start_time, screen)
        submission = await submit_backlog(checked, screen, submitted, detach=options.detach)
        if options.detach:
            return 0
        # Imported only now: loading it takes longer than finding a mistake in the backlog.
        from perdure.cli.look.watch import follow_backlog

        return await follow_backlog(submission.backlog, screen)

    try:
        raise typer.Exit(run_coroutine(work()))
    except KeyboardInterrupt:
        if not submitted:
            raise
        # Imported only now: see above.
        from perdure.cli.look.watch import leave_backlog

        raise leave_backlog(screen, submitted[0].backlog.id) from None


@dataclass(frozen=True)
class CheckedBacklog:
    """A backlog that can be submitted under this id, and what was learned about its repository on the way.

    stand_in        the checked request of a stand-in delivery: repository, base and settings are the backlog's
    has_issues      open issues are among its items
    from_selector   the items are exactly the issues of `--issues`, and the id is made from that
    pulls_by_issue  by open issue, the number of an open pull request that Perdure made for it
    repo_option     the repository as `--repo` names it; empty: not given
    """

    id: str
    request: BacklogRequest
    stand_in: CheckedRequest
    has_issues: bool = False
    from_selector: bool = False
    pulls_by_issue: Mapping[int, int] = field(default_factory=dict)
    repo_option: str = ""


def check_backlog(options: BacklogOptions, env: Mapping[str, str], *, is_scheduled: bool = False) -> CheckedBacklog:
    """Check a backlog completely, the cheapest first, and return what can be submitted. Starts nothing.

    Reads the file, lists the issues of `--issues`, and looks at the repository: blocks on git and the network. With
    `is_scheduled`, the issues are those that are open when the backlog begins, and are not listed here.

    Raises BadInput with file, line and item for what is wrong in the file, and BadInput or InvalidRequest with the
    option's name for what is wrong in an option; another PerdureError when the repository or forge cannot be read.
    """
    check_id(options.id)
    file = _backlog_file(options, env)
    overrides = parse_options(options, BacklogRequest)
    if not is_scheduled:
        overrides.pop("issues", None)  # they become items here
    raw = {"repository": ".", **file.raw} | overrides
    pulls_by_issue: Mapping[int, int] = {}
    if options.issues is not None:
        forge, query = find_issue_forge(options.issues, str(raw["repository"]), env)
        numbers, pulls_by_issue = ((), {}) if is_scheduled else list_open_issues(forge, query)
        raw["items"] = [*_raw_items(raw), *({"issue": number} for number in numbers)]
    if options.request is not None:
        raw["items"] = [{"id": DECOMPOSED_ID, "request": options.request, "decompose": "go" if options.yes else "ask"}]
    # The settings of --config are checked by check_request, whose error names the line.
    draft = _parse_and_check(raw, file, overrides, *([check_config] if options.config is None else []))
    stand_in = check_request(
        DeliverOptions(
            request=_PLACEHOLDER_REQUEST,
            repo=draft.repository,
            base=draft.base,
            model=draft.model,
            agent=draft.agent,
            config=options.config,
            label=list(draft.labels),
            written=(f"{file.name}: config", draft.config) if draft.config is not None else None,
        ),
        env,
    )
    target_fields = {"repository": stand_in.request.repository, "source": stand_in.request.source}
    complete = raw | {name: value for name, value in target_fields.items() if value is not None}
    request = _parse_and_check(
        complete, file, overrides, lambda request: check_against_repository(stand_in, request, env)
    )
    has_issues = options.issues is not None
    from_selector = has_issues and options.file is None and options.id is None
    id = options.id or _default_id(options, stand_in.request.repository)
    return CheckedBacklog(id, request, stand_in, has_issues, from_selector, pulls_by_issue, options.repo or "")


def _backlog_file(options: BacklogOptions, env: Mapping[str, str]) -> BacklogFile:
    """Read the file of items; for `--request`, or `--issues` alone, return an empty one that is named after the option.

    Raises BadInput where the options contradict each other, none of them gives items, or the request is empty.
    """
    if options.request is not None:
        if other := options.file or ("--issues" if options.issues is not None else ""):
            fix = "give one of them; in the file, an item with `decompose: ask` is made into items, beside the others"
            raise BadInput("a request and items were given", where=f"--request and {other}", fix=fix)
        if not options.request.strip():
            raise BadInput("request: is empty: say what you want", where="--request", fix='--request "…"')
        return parse_backlog_file("{}", "--request")
    if options.yes:
        raise BadInput("there is nothing to approve but the items of a request", where="--yes", fix='--request "…"')
    if options.file is None and options.issues is None:
        fix = 'perdure backlog start FILE, --issues label:bug, or --request "…"; docs/backlog.md has an example'
        raise BadInput("no items were given", where="FILE", fix=fix)
    return read_backlog_file(options.file) if options.file is not None else parse_backlog_file("{}", "--issues")


def _raw_items(raw: Mapping[str, Any]) -> list[Any]:
    items = raw.get("items", [])
    return items if isinstance(items, list) else [items]


def _parse_and_check(
    raw: dict[str, Any],
    file: BacklogFile,
    overrides: Mapping[str, Any],
    extra_check: Callable[[BacklogRequest], None] = lambda _: None,
) -> BacklogRequest:
    """Parse the backlog's request, check the zone of its hours, call `extra_check` with it, and return it.

    Converts InvalidRequest to BadInput that names the option, or else the file and line, from which the field is.
    """
    try:
        request = parse_backlog(raw)
        if reason := backlog_refusal(request):
            raise InvalidRequest(reason)
        _check_zone(request.window)
        extra_check(request)
        return request
    except InvalidRequest as error:
        field = error.what.partition(":")[0].partition(".")[0]
        if field in overrides:
            raise BadInput(error.what, where=option_name(field), fix=error.fix) from None
        raise file.locate_error(error) from None


def _check_zone(window: str | None) -> None:
    """Raise InvalidRequest for hours in a time zone that does not exist.

    Where this host knows no time zones at all, nothing is checked: a worker will.
    """
    if zoneinfo.available_timezones():
        zone_offsets(window, datetime.now(UTC))


def _default_id(options: BacklogOptions, repository: str) -> str:
    """Return an id made from the file's name, as people call it; without a file from the repository and the issues or
    request."""
    if options.file not in (None, "-"):
        return slug(Path(str(options.file)).stem, max_words=6, max_chars=_ID_CHARS)
    return f"{repository_name(repository)}-{slug(options.issues or options.request or 'backlog')}"


async def submit_backlog(
    checked: CheckedBacklog, screen: Screen, submitted: list[BacklogSubmission], *, detach: bool
) -> BacklogSubmission:
    """Start the backlog, or attach to the one of that id if it is the same; print the header and what differs; return
    the submission.

    Starts server and worker where they are missing. Issues that have an open pull request already are left out. With
    `detach`, waits until a worker has accepted it, for at most DECISION_ACCEPTED. Raises BadInput when the id is
    another backlog's, no item remains, or the running worker has other keys.

    submitted  the submission is appended to it as soon as it exists: from then on Ctrl-C only leaves
    """
    # Imported only now: loading these takes longer than finding a mistake in the request.
    from perdure.cli.request.submit import print_start, start_worker_and_connect, submission_json

    perdure = await start_worker_and_connect(checked.stand_in, screen)
    patience = DECISION_ACCEPTED if detach else None
    request, excluded_lines = await without_proposed_issues(
        perdure.backlog(checked.id), checked.request, checked.pulls_by_issue
    )
    checked = replace(checked, request=request)
    submission = await perdure.submit_backlog(
        checked.request, checked.id, patience=patience, from_selector=checked.from_selector
    )
    submitted.append(submission)
    status_command, restart_hint = (
        f"perdure backlog status {shell_word(checked.id)}",
        "" if checked.has_issues else "; --id NAME starts another",
    )
    limits = _limit_texts(submission.existing_request or checked.request)
    await print_start(
        checked.stand_in,
        checked.id,
        submission,
        screen,
        limits,
        watch_command=status_command,
        restart_hint=restart_hint,
        detach=detach,
    )
    for message in (*excluded_lines, *await _resubmission_lines(submission, checked)):
        screen.say(message)
    if detach and screen.json:
        missing = {"come": submission.missing_issues} if submission.missing_issues else {}
        screen.print_json({"backlog_id": checked.id, **submission_json(submission), **missing})
    return submission


async def _resubmission_lines(submission: BacklogSubmission, checked: CheckedBacklog) -> list[str]:
    """Return the lines about a backlog that existed already: settings that are ignored, and issues that it does not
    have."""
    lines = (
        [ignored_settings_line(submission.existing_request, checked.request)]
        if submission.existing_request is not None
        else []
    )
    if submission.missing_issues:
        running = (await submission.backlog.describe()).running
        lines.append(
            missing_issues_line(checked.id, submission.missing_issues, running=running, repo=checked.repo_option)
        )
    return list(filter(None, lines))


async def schedule_backlog(checked: CheckedBacklog, start_time: StartTime, screen: Screen) -> int:
    """Make a schedule that starts the backlog, each time on the base branch as it is then; return exit code 0.

    Raises BadInput when another schedule has this id, or the server refuses it or has no schedules.
    """
    # Imported only now: see above.
    from perdure.cli.look.schedules import create_schedule

    await create_schedule(
        checked.request, checked.id, start_time, checked.stand_in, screen, _limit_texts(checked.request)
    )
    return 0


def _limit_texts(request: BacklogRequest) -> list[str]:
    """Return the header's short texts about the backlog's size and limits: `8 items`, `4 at a time`, `budget
    $40.00`."""
    budget = [f"budget {format_money(request.budget_usd)}"] if request.budget_usd is not None else []
    window = [f"begins {request.window}"] if request.window else []
    items = [format_count(len(request.items), "item")] if request.items else []
    issues = [f"issues {request.issues}"] if request.issues else []
    stack = ["a pull request for each"] if request.is_stack else []
    return [*items, *issues, *stack, f"{request.parallel} at a time", *budget, *window]


def read_backlog_file(path: str) -> BacklogFile:
    """Read a backlog from a file, `-` for standard input. Raises BadInput with file and line."""
    name = "standard input" if path == "-" else path
    return parse_backlog_file(_read_text(path, name), name)


def _read_text(path: str, name: str) -> str:
    """Read the file, or standard input for `-`. Raises BadInput for what is not readable, not UTF-8 or over
    BACKLOG_BYTES."""
    try:
        if path != "-":
            return read_text(Path(path).expanduser(), BACKLOG_BYTES)
        return decode_text(sys.stdin.buffer.read(BACKLOG_BYTES + 1), BACKLOG_BYTES)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"the backlog cannot be read: {unreadable_reason(error)}", where=name, fix="name a YAML file"
        ) from None

"""Handing in a backlog: checked to the end before anything is started, then watched until it ends."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.cli.backlog.again import since_then, unheeded
from perdure.cli.backlog.checked import check_config, check_with
from perdure.cli.backlog.file import BacklogFile, parsed, read_file
from perdure.cli.backlog.issues import asked_forge, open_issues, unbuilt
from perdure.cli.request.repository import read_config
from perdure.cli.request.schedule import Timed, put_on
from perdure.cli.request.validation import (
    DeliverOptions,
    Taken,
    check_id,
    parse_gates,
    parse_labels,
    take_in,
)
from perdure.cli.screen import Screen
from perdure.cli.words import count, money
from perdure.models.backlog import BacklogRequest
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.ids import repository_name, slug
from perdure.models.limits import DECISION_ACCEPTED
from perdure.models.rules.backlog import parse_backlog

if TYPE_CHECKING:
    from perdure.client import SubmittedBacklog

_ID_CHARS = 40
LARGE = "items"
"""The id of the item that a large request is, until its parts take its place: `perdure approve night/items`."""

_STANDS_FOR = "a backlog"
"""In the place of a request, where what it needs is found out: no issue's number is in it."""


@dataclass(frozen=True, kw_only=True)
class BacklogOptions:
    """The options of `perdure backlog start` as they were typed; None and empty: the file decides."""

    file: str | None = None
    issues: str | None = None
    request: str | None = None
    yes: bool = False
    id: str | None = None
    repo: str | None = None
    base: str | None = None
    land: str | None = None
    parallel: int | None = None
    budget: float | None = None
    attempts: int | None = None
    after_red: bool = False
    window: str | None = None
    gate: list[str] | None = None
    labels: tuple[str, ...] = ()
    questions: bool = True
    model: str | None = None
    agent: str | None = None
    config: Path | None = None

    def over(self) -> dict[str, tuple[str, Any]]:
        """The options that count instead of the file's: field → option and value."""
        said = {
            "repository": ("--repo", self.repo),
            "base": ("--base", self.base),
            "land": ("--land", self.land),
            "parallel": ("--parallel", self.parallel),
            "budget_usd": ("--budget", self.budget),
            "attempts": ("--attempts", self.attempts),
            "after_red": ("--after-red", self.after_red or None),
            "window": ("--window", self.window),
            "gates": ("--gate", parse_gates(",".join(self.gate)) if self.gate else None),
            "labels": ("--label", parse_labels(self.labels) or None),
            "questions": ("--no-questions", None if self.questions else False),
            "model": ("--model", self.model),
            "agent": ("--agent", self.agent),
            "config": ("--config", read_config(self.config) if self.config else None),
        }
        return {field: (option, value) for field, (option, value) in said.items() if value is not None}


@dataclass(frozen=True)
class TakenBacklog:
    """A backlog that can be submitted, under this id, and what was learned about its repository on the way.

    issues  open ones are among its items; listed: they are all of these, and the id is made from --issues
    built   of the open ones those with an open pull request of ours, its number by theirs
    repo    of --repo
    """

    id: str
    request: BacklogRequest
    taken: Taken
    issues: bool = False
    listed: bool = False
    built: Mapping[int, int] = field(default_factory=dict)
    repo: str = ""


def take_in_backlog(asked: BacklogOptions, env: Mapping[str, str], *, later: bool = False) -> TakenBacklog:
    """Check everything that can be checked here, the cheapest first. Blocks on git and the network. `later`: `--issues`
    are those that are open then.

    BadInput with file, line and item for what is wrong in the file, with the option's name for what is wrong in it.
    """
    check_id(asked.id)
    file = _given(asked, env)
    over = asked.over() | ({"issues": ("--issues", asked.issues)} if later and asked.issues is not None else {})
    raw = {"repository": ".", **file.raw} | {field: value for field, (_, value) in over.items()}
    built: Mapping[int, int] = {}
    if asked.issues is not None:
        forge, wanted = asked_forge(asked.issues, str(raw["repository"]), env)
        found, built = ((), {}) if later else open_issues(forge, wanted)
        raw["items"] = [*_items(raw), *({"issue": number} for number in found)]
    if asked.request is not None:
        raw["items"] = [{"id": LARGE, "request": asked.request, "decompose": "go" if asked.yes else "ask"}]
    # Of --config, `take_in` says the line.
    first = _checked(raw, file, over, *([check_config] if asked.config is None else []))
    taken = take_in(
        DeliverOptions(
            request=_STANDS_FOR,
            repo=first.repository,
            base=first.base,
            model=first.model,
            agent=first.agent,
            config=asked.config,
            labels=first.labels,
            written=(f"{file.name}: config", first.config) if first.config is not None else None,
        ),
        env,
    )
    known = {"repository": taken.request.repository, "source": taken.request.source}
    whole = raw | {name: value for name, value in known.items() if value is not None}
    request = _checked(whole, file, over, lambda request: check_with(taken, request, env))
    issues = asked.issues is not None
    listed = issues and asked.file is None and asked.id is None
    id = asked.id or _id(asked, taken.request.repository)
    return TakenBacklog(id, request, taken, issues, listed, built, asked.repo or "")


def _given(asked: BacklogOptions, env: Mapping[str, str]) -> BacklogFile:
    if asked.request is not None:
        if other := asked.file or ("--issues" if asked.issues is not None else ""):
            fix = "give one of them; in the file, an item with `decompose: ask` is made into items, beside the others"
            raise BadInput("a request and items were given", where=f"--request and {other}", fix=fix)
        if not asked.request.strip():
            raise BadInput("request: is empty: say what you want", where="--request", fix='--request "…"')
        return parsed("{}", "--request")
    if asked.yes:
        raise BadInput("there is nothing to approve but the items of a request", where="--yes", fix='--request "…"')
    if asked.file is None and asked.issues is None:
        fix = 'perdure backlog start FILE, --issues label:bug, or --request "…"; docs/backlog.md has an example'
        raise BadInput("no items were given", where="FILE", fix=fix)
    return read_file(asked.file) if asked.file is not None else parsed("{}", "--issues")


def _items(raw: Mapping[str, Any]) -> list[Any]:
    items = raw.get("items", [])
    return items if isinstance(items, list) else [items]


def _checked(
    raw: dict[str, Any],
    file: BacklogFile,
    over: Mapping[str, tuple[str, Any]],
    further: Callable[[BacklogRequest], None] = lambda _: None,
) -> BacklogRequest:
    try:
        request = parse_backlog(raw)
        _check_zone(request.window)
        further(request)
        return request
    except InvalidRequest as error:
        field = error.what.partition(":")[0].partition(".")[0]
        if field in over:
            raise BadInput(error.what, where=over[field][0], fix=error.fix) from None
        raise file.placed(error) from None


def _check_zone(window: str | None) -> None:
    """InvalidRequest for hours in a zone that nobody knows; where this host knows none at all, a worker's will say."""
    from perdure.adapters.system.zones import offsets

    if zoneinfo.available_timezones():
        offsets(window, datetime.now(UTC))


def _id(asked: BacklogOptions, repository: str) -> str:
    """From the file's name, which is how people call it; else from the repository and the issues or the request."""
    if asked.file not in (None, "-"):
        return slug(Path(str(asked.file)).stem, words=6, limit=_ID_CHARS)
    return f"{repository_name(repository)}-{slug(asked.issues or asked.request or 'backlog')}"


async def hand_in_backlog(
    taken: TakenBacklog, screen: Screen, submitted: list[SubmittedBacklog], *, detach: bool
) -> SubmittedBacklog:
    """Start it, or come back to the same of that id, and tell the header.

    submitted  gets what was started as soon as it is: from then on Ctrl-C only leaves
    """
    # Only now: these take longer to load than a mistake takes to find.
    from perdure.cli.request.submit import at_work, started_json, tell_start

    perdure = await at_work(taken.taken, screen)
    patience = DECISION_ACCEPTED if detach else None
    request, left_out = await unbuilt(perdure.backlog(taken.id), taken.request, taken.built)
    taken = replace(taken, request=request)
    found = await perdure.submit_backlog(taken.request, taken.id, patience=patience, listed=taken.listed)
    submitted.append(found)
    typed, another = f"perdure backlog status {taken.id}", "" if taken.issues else "; --id NAME starts another"
    limits = _limits(found.there or taken.request)
    await tell_start(taken.taken, taken.id, found, screen, limits, typed=typed, another=another, detach=detach)
    for words in (*left_out, *await _told(found, taken)):
        screen.say(words)
    if detach and screen.json:
        come = {"come": found.come} if found.come else {}
        screen.data({"backlog_id": taken.id, **started_json(found), **come})
    return found


async def _told(found: SubmittedBacklog, taken: TakenBacklog) -> list[str]:
    """Lines about one that was there already: what of the words does not count, and the issues that it has not."""
    lines = [unheeded(found.there, taken.request)] if found.there is not None else []
    if found.come:
        running = (await found.backlog.describe()).running
        lines.append(since_then(taken.id, found.come, running=running, repo=taken.repo))
    return list(filter(None, lines))


async def schedule_backlog(taken: TakenBacklog, at: Timed, screen: Screen) -> int:
    """The same backlog, each time anew on the base branch as it is then."""
    await put_on(taken.request, taken.id, at, taken.taken, screen, _limits(taken.request))
    return 0


def _limits(request: BacklogRequest) -> list[str]:
    budget = [f"budget {money(request.budget_usd)}"] if request.budget_usd is not None else []
    window = [f"begins {request.window}"] if request.window else []
    named = [count(len(request.items), "item")] if request.items else []
    looked = [f"issues {request.issues}"] if request.issues else []
    stacked = ["a pull request for each"] if request.land == "stack" else []
    return [*named, *looked, *stacked, f"{request.parallel} at a time", *budget, *window]

"""Handing in what was taken in: what it needs is started, what begins is told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure import __version__, secrets
from perdure.cli.screen import Screen
from perdure.cli.words import money, short, tilde
from perdure.models.limits import DECISION_ACCEPTED

if TYPE_CHECKING:
    from perdure.cli.request.validation import DeliverOptions, Taken
    from perdure.client import Perdure, Submitted, SubmittedBacklog


async def hand_in(
    taken: Taken, asked: DeliverOptions, screen: Screen, submitted: list[Submitted], *, detach: bool, name: str = ""
) -> Submitted:
    """Start the delivery, or come back to the one of that id or of the same words, and tell the header.

    name       what its id is made from, where that is neither the issue nor the words
    submitted  gets what was started as soon as it is: from then on Ctrl-C only leaves
    """
    # Only now: these take longer to load than a mistake takes to find.
    from perdure.adapters.system.home import Home
    from perdure.cli.request.issue import is_there

    home = Home.find()
    if (refusal := taken.meant.refusal) is not None and not await is_there(home, asked.id or taken.issue_id):
        raise refusal
    perdure = await at_work(taken, screen)
    # Whoever stays sees what becomes of it; whoever leaves should know whether anybody has it.
    patience = DECISION_ACCEPTED if detach else None
    found = await perdure.submit(taken.request, asked.id, new=asked.new, name=name, at=taken.tip, patience=patience)
    submitted.append(found)
    another = "" if asked.id is not None else "; --new starts another"
    id, typed = found.delivery.id, f"perdure watch {found.delivery.id}"
    await tell_start(taken, id, found, screen, _limits(taken), typed=typed, another=another, detach=detach)
    if detach and screen.json:
        screen.data({"delivery_id": id, **started_json(found)})
    return found


async def tell_start(
    taken: Taken,
    id: str,
    found: Submitted | SubmittedBacklog,
    screen: Screen,
    limits: Sequence[str],
    *,
    typed: str,
    another: str,
    detach: bool,
) -> None:
    """Tell the header, and what became of it. `typed`: what shows it later; `another`: what starts another one."""
    from perdure.adapters.system.home import Home
    from perdure.cli.host.web import web_page
    from perdure.cli.host.workers import absent

    if not screen.json:
        page = await web_page(Home.find(), id)
        watching = [typed if detach else "Ctrl-C leaves; the work goes on", *([page] if page else [])]
        header = await asyncio.to_thread(header_lines, taken, id, watching, limits)
        screen.lines(header if detach else [*header, ""])
    if found.attached:
        screen.say(f"{id} is already there: nothing new was started{another}")
    if found.accepted is False:
        why = "no worker has taken it yet: it begins when one runs" if taken.elsewhere else absent()
        screen.say(f"{id} is recorded; {why}")


def started_json(found: Submitted | SubmittedBacklog) -> dict[str, bool | None]:
    return {"attached": True} if found.attached else {"attached": False, "accepted": found.accepted}


async def at_work(taken: Taken, screen: Screen) -> Perdure:
    """The client, once there is a worker to hand something to: ours is started, those elsewhere are somebody's."""
    from perdure.adapters.system.home import Home
    from perdure.cli.request.issue import publishes_here
    from perdure.client import Perdure
    from perdure.local.connect import connect
    from perdure.local.up import ensure_running

    home = Home.find()
    if not taken.elsewhere:
        await ensure_running(home, screen.say, hosted=publishes_here(taken.target.url, secrets.environment()))
    # Workers elsewhere may be this home's all the same; a home that never was is not made for them.
    key = home.key() if not taken.elsewhere or home.root.is_dir() else None
    return Perdure(await connect(home, start=False, say=screen.say), key)


def header_lines(taken: Taken, id: str, watching: Sequence[str], limits: Sequence[str]) -> list[str]:
    """The first lines of what was handed in. `limits`: what is said of its money and number beside the settings."""
    from perdure.adapters.git.door import redact
    from perdure.adapters.git.source import not_included
    from perdure.cli.look.story import Header

    checkout, target = taken.target.checkout, redact(taken.target.url)
    has_origin = checkout is not None and str(checkout) != taken.target.url
    begins = taken.request.branch or taken.base
    return Header(
        version=__version__,
        delivery_id=id,
        checkout=tilde(checkout) if checkout is not None and has_origin else "",
        target=f"origin {target}" if has_origin else target,
        base=base_line(taken),
        issue=taken.meant.shown,
        not_included=not_included(checkout, begins, taken.base, taken.target.heads.branches)
        if checkout is not None
        else (),
        settings=[taken.file, *([] if taken.elsewhere else [_sandbox(taken.host.sandbox)]), *limits],
        watching=watching,
    ).lines()


def _limits(taken: Taken) -> list[str]:
    from perdure.adapters.repository.config import effective

    if taken.elsewhere:
        return [f"budget {money(taken.request.budget_usd)}"] if taken.request.budget_usd is not None else []
    counts = effective(
        host=taken.host, env=os.environ, repository=taken.repository_config, request=taken.request
    ).config.limits
    return [f"budget {money(counts.budget_usd)}"]


def base_line(taken: Taken) -> str:
    """The base as the first lines tell it: `main at 4be1c02`, or `feature at 0d77a1e, against main at 4be1c02`."""
    if taken.target.empty:
        return f"empty: {taken.base} begins with an empty commit, pushed before the delivery's branch"
    base = f"{taken.base} at {short(taken.base_sha)}"
    branch = taken.request.branch
    tip = f"{branch} at {short(taken.target.heads.branches[branch])}, against " if branch is not None else ""
    return f"{tip}{base}, asked just now"


def _sandbox(grade: str) -> str:
    names = {"full": "sandbox bubblewrap", "reduced": "sandbox REDUCED (Landlock)", "off": "sandbox OFF"}
    return names.get(grade, grade)

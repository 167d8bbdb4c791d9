"""The demo of a backlog: eight items land on one branch, four at a time, while their worker is killed twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress

from perdure import __version__
from perdure.adapters.git.door import Git
from perdure.cli.backlog.drawing import draw
from perdure.cli.backlog.file import read_file
from perdure.cli.backlog.receipt import BacklogReceipt, read_receipt
from perdure.cli.backlog.text import changes, headline, status_lines
from perdure.cli.backlog.watch import BACKLOG_LOOK_S
from perdure.cli.look.chapters import BAD
from perdure.cli.look.story import AGAIN
from perdure.cli.screen import Screen
from perdure.cli.words import typed_here
from perdure.client import Backlog, Perdure
from perdure.demo.killer import paced
from perdure.demo.performance import Wanted, World, opened_world
from perdure.demo.stage import DemoDirectories, stage
from perdure.local.places import Places, examples, read_supervisor
from perdure.local.processes import signal_holder
from perdure.models.backlog_messages import BacklogProgress
from perdure.models.decisions import Gate
from perdure.models.errors import PerdureError
from perdure.rehearsal.screenplay import Screenplay
from perdure.text import visible

ID = "night"
BLOCKED = {"invoice": "halves"}
"""Of examples/backlog/night.yaml: what is blocked, and by what, until a person retries that."""

KILLS: tuple[Callable[[BacklogProgress], bool], ...] = (
    lambda progress: sum(view.phase == "building" for view in progress.items) >= 3,
    lambda progress: any(view.phase == "landing" for view in progress.items) and bool(progress.head),
)
"""The worker is killed while three are built at once, and while somebody lands behind somebody else."""


async def play(screen: Screen, wanted: Wanted) -> int:
    """Play it; the exit code: 0 when every item is where it should be and the receipt has nothing but zeros."""
    material = examples() / "backlog"
    screenplay = Screenplay.load(material / f"{ID}.toml")
    if wanted.fast:
        screenplay = paced(screenplay, ())
    screen.say(f"perdure {__version__} · demo: eight items, one branch, and workers that get killed")
    with stage(wanted.keep) as place:
        async with opened_world(place, screenplay) as world:
            raw = read_file(str(material / f"{ID}.yaml")).raw | {"repository": str(place.origin)}
            backlog = (await world.perdure.submit_backlog(raw, ID)).backlog
            screen.say(f"  repository    durations, a small Python package, fresh in {place.origin}")
            screen.say("  model         scripted: no key, no account, nothing is paid; costs are shown as if")
            screen.say("")
            blocked = await _watched(screen, world, place, backlog, wanted.kills)
            progress = await backlog.result()
            receipt = await read_receipt(backlog, progress)
        _tell(screen, place, progress, receipt)
        place.over.touch()
    if screen.json:
        screen.data(progress.model_dump_json(indent=2))
    return 0 if whole(progress, blocked) and receipt.clean else 1


def whole(progress: BacklogProgress, blocked: Mapping[str, str]) -> bool:
    """True when all landed, and what needs the one that failed at first was blocked by it until then."""
    return blocked == BLOCKED and all(view.phase == "landed" for view in progress.items)


async def _watched(
    screen: Screen, world: World, place: DemoDirectories, backlog: Backlog, kills: int
) -> dict[str, str]:
    """Tell what changes and kill on the way, until it has ended; return what was blocked meanwhile, and by what.
    Raises when the supervisor is gone."""
    before: BacklogProgress | None = None
    blocked: dict[str, str] = {}
    moments, killed = list(KILLS[:kills]), set[int]()
    while True:
        if world.supervisor.returncode is not None:
            raise PerdureError("the worker's supervisor ended", fix="perdure doctor")
        if not (await backlog.describe()).running:
            return blocked
        with suppress(PerdureError):  # no worker answers: it was killed, and the next one is on its way
            progress = await backlog.progress(once=True)
            for line in changes(before, progress):
                screen.say(line)
            before = progress
            record = read_supervisor(place.home)
            worker = record.worker_pid if record is not None else None
            if moments and worker is not None and worker not in killed and moments[0](progress):
                moments.pop(0)
                killed.add(worker)
                if signal_holder(worker, Places(place.home).worker_lock, signal.SIGKILL):
                    screen.say(f"{BAD} worker {worker} killed: {headline(progress)}")
            await decide(world.perdure, progress)
            for view in progress.items:
                if view.phase == "blocked" and view.id not in blocked:
                    await backlog.retry(view.blocked_by, by="demo")
                    blocked[view.id] = view.blocked_by
                    screen.say(f"{AGAIN} {typed_here()} backlog retry {ID} {view.blocked_by}")
        await asyncio.sleep(BACKLOG_LOOK_S / 4)


async def decide(perdure: Perdure, progress: BacklogProgress) -> None:
    """Answer what kills make Perdure ask: nobody else is asked anything here."""
    for view in progress.items:
        if view.phase == "waits" and view.delivery:
            delivery = perdure.delivery(view.delivery)
            asked = (await delivery.describe()).asked
            if asked is not None and asked.gate is Gate.BUDGET:
                await delivery.add_budget(1, id=asked.key, by="demo")
            elif asked is not None:
                await delivery.approve(asked.of, note="the kills were asked for", by="demo")


def _tell(screen: Screen, place: DemoDirectories, progress: BacklogProgress, receipt: BacklogReceipt) -> None:
    landed = Git(git_dir=place.origin).text("log", "--oneline", f"main..{progress.branch}")
    perdure = typed_here()
    for line in (
        *("", *status_lines(progress), "", *draw(progress, "text").splitlines()),
        *("", f"The branch {progress.branch}, one commit an item:"),
        *(f"  {line}" for line in visible(landed).splitlines()),
        *("", "Receipt, counted from history and git", *(f"  {line}" for line in receipt.lines())),
        *("", f"All of it is kept in {place.root}, until the next demo. To look at it:"),
        f"  export PERDURE_HOME={place.home.root}",
        f"  {perdure} up --detach && {perdure} backlog report {ID} --html night.html     # {perdure} down ends it",
    ):
        screen.say(line)

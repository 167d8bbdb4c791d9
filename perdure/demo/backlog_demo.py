"""The demo of a backlog: eight items land on one branch, four at a time, while their worker is killed twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress

from perdure import __version__
from perdure.adapters.git.command import Git
from perdure.cli.backlog.drawing import draw_graph
from perdure.cli.backlog.file import read_backlog_file
from perdure.cli.backlog.receipt import BacklogReceipt, read_receipt
from perdure.cli.backlog.text import change_lines, headline, status_lines
from perdure.cli.backlog.watch import BACKLOG_LOOK_S
from perdure.cli.formatting import own_command
from perdure.cli.look.progress_lines import RETRY
from perdure.cli.look.step_lines import BAD
from perdure.cli.screen import Screen
from perdure.client import Backlog, Perdure
from perdure.demo.delivery_demo import DemoOptions, DemoWorld, open_world
from perdure.demo.environment import DemoDirectories, open_directories
from perdure.demo.worker_killer import without_waiting
from perdure.local.places import Places, examples_directory, read_running_supervisor
from perdure.local.processes import signal_lock_holder
from perdure.models.backlog_messages import BacklogProgress
from perdure.models.decisions import Gate
from perdure.models.errors import PerdureError
from perdure.rehearsal.screenplay import Screenplay
from perdure.text import visible

BACKLOG_ID = "night"
EXPECTED_BLOCKS = {"invoice": "halves"}
"""The items of examples/backlog/night.yaml that are blocked, and by which item, until a person retries that one."""

KILL_CONDITIONS: tuple[Callable[[BacklogProgress], bool], ...] = (
    lambda progress: sum(view.phase == "building" for view in progress.items) >= 3,
    lambda progress: any(view.phase == "landing" for view in progress.items) and bool(progress.head),
)
"""The moments to kill the worker at: while three items are built at once, and while an item lands behind another
one."""


async def play_backlog_demo(screen: Screen, options: DemoOptions) -> int:
    """Play the demo: submit the backlog, kill its worker on the way, and print what happens, the receipt and what can
    be looked at. Return the exit code: 0 when every item is where it should be and the receipt has nothing but zeros.
    """
    material = examples_directory() / "backlog"
    screenplay = Screenplay.load(material / f"{BACKLOG_ID}.toml")
    if options.fast:
        screenplay = without_waiting(screenplay, ())
    screen.say(f"perdure {__version__} · demo: eight items, one branch, and workers that get killed")
    with open_directories(options.keep) as directories:
        async with open_world(directories, screenplay) as world:
            request = read_backlog_file(str(material / f"{BACKLOG_ID}.yaml")).raw | {
                "repository": str(directories.origin)
            }
            backlog = (await world.perdure.submit_backlog(request, BACKLOG_ID)).backlog
            screen.say(f"  repository    durations, a small Python package, fresh in {directories.origin}")
            screen.say("  model         scripted: no key, no account, nothing is paid; costs are shown as if")
            screen.say("")
            blocked = await _watch_and_kill(screen, world, directories, backlog, options.kills)
            progress = await backlog.result()
            receipt = await read_receipt(backlog, progress)
        _print_end(screen, directories, progress, receipt)
        directories.finished_file.touch()
    if screen.json:
        screen.print_json(progress.model_dump_json(indent=2))
    return 0 if is_as_expected(progress, blocked) and receipt.clean else 1


def is_as_expected(progress: BacklogProgress, blocked: Mapping[str, str]) -> bool:
    """Return whether all items landed, and the item that needs the one which failed at first, and only that item, was
    blocked by it until then."""
    return blocked == EXPECTED_BLOCKS and all(view.phase == "landed" for view in progress.items)


async def _watch_and_kill(
    screen: Screen, world: DemoWorld, directories: DemoDirectories, backlog: Backlog, kills: int
) -> dict[str, str]:
    """Print what changes, kill the worker under the first `kills` conditions and retry what blocks an item, until the
    backlog has ended; return what was blocked meanwhile, and by what. Raises PerdureError when the supervisor has
    ended."""
    previous: BacklogProgress | None = None
    blocked: dict[str, str] = {}
    conditions, killed_pids = list(KILL_CONDITIONS[:kills]), set[int]()
    while True:
        if world.supervisor.returncode is not None:
            raise PerdureError("the worker's supervisor ended", fix="perdure doctor")
        if not (await backlog.describe()).running:
            return blocked
        with suppress(PerdureError):  # no worker answers: it was killed, and the next one is on its way
            progress = await backlog.progress(once=True)
            for line in change_lines(previous, progress):
                screen.say(line)
            previous = progress
            record = read_running_supervisor(directories.home)
            worker = record.worker_pid if record is not None else None
            if conditions and worker is not None and worker not in killed_pids and conditions[0](progress):
                conditions.pop(0)
                killed_pids.add(worker)
                if signal_lock_holder(worker, Places(directories.home).worker_lock, signal.SIGKILL):
                    screen.say(f"{BAD} worker {worker} killed: {headline(progress)}")
            await answer_questions(world.perdure, progress)
            for view in progress.items:
                if view.phase == "blocked" and view.id not in blocked:
                    await backlog.retry(view.blocked_by, by="demo")
                    blocked[view.id] = view.blocked_by
                    screen.say(f"{RETRY} {own_command()} backlog retry {BACKLOG_ID} {view.blocked_by}")
        await asyncio.sleep(BACKLOG_LOOK_S / 4)


async def answer_questions(perdure: Perdure, progress: BacklogProgress) -> None:
    """Approve what the kills make Perdure ask about, and add a dollar where it asks for budget: nobody else is asked
    anything here."""
    for view in progress.items:
        if view.phase == "waits" and view.delivery:
            delivery = perdure.delivery(view.delivery)
            pending_decision = (await delivery.describe()).pending_decision
            if pending_decision is not None and pending_decision.gate is Gate.BUDGET:
                await delivery.add_budget(1, id=pending_decision.key, by="demo")
            elif pending_decision is not None:
                await delivery.approve(pending_decision.target, note="the kills were asked for", by="demo")


def _print_end(
    screen: Screen, directories: DemoDirectories, progress: BacklogProgress, receipt: BacklogReceipt
) -> None:
    """Print the items, the commits on the integration branch, the receipt, and how to look at what is kept."""
    landed_log = Git(git_dir=directories.origin).text("log", "--oneline", f"main..{progress.branch}")
    perdure = own_command()
    for line in (
        *("", *status_lines(progress), "", *draw_graph(progress, "text").splitlines()),
        *("", f"The branch {progress.branch}, one commit an item:"),
        *(f"  {line}" for line in visible(landed_log).splitlines()),
        *("", "Receipt, counted from history and git", *(f"  {line}" for line in receipt.lines())),
        *("", f"All of it is kept in {directories.root}, until the next demo. To look at it:"),
        f"  export PERDURE_HOME={directories.home.root}",
        f"  {perdure} up --detach && {perdure} backlog report {BACKLOG_ID} --html night.html     # "
        f"{perdure} down ends it",
    ):
        screen.say(line)

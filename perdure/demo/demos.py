"""The demos of `perdure demo`: real work of a scripted model, one delivery or a backlog of eight items, while its
worker is killed again and again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from perdure import __version__
from perdure.adapters.git.command import Git
from perdure.cli.backlog.receipt import read_receipt
from perdure.cli.backlog.start import read_backlog_file
from perdure.cli.keys import ENTER, TerminalKeys, is_at_terminal
from perdure.cli.look.watch import DeliveryWatcher
from perdure.cli.screen import Screen
from perdure.client import Backlog, Delivery, Perdure, RunDescription
from perdure.demo import scenario as words
from perdure.demo.environment import (
    PACKAGE,
    DemoDirectories,
    cli_agent_variables,
    demo_variables,
    find_best_grade,
    open_directories,
    run_supervisor,
)
from perdure.demo.scenario import DemoScenario, own_command, scenario_for
from perdure.demo.worker_killer import KILL_POINTS, WorkerKiller, without_waiting
from perdure.local.connect import connect_to_temporal, web_ui_url
from perdure.local.places import Places, examples_directory, read_running_supervisor
from perdure.local.processes import last_lines, signal_lock_holder
from perdure.local.server import stop_server
from perdure.models.backlog.state import BacklogProgress
from perdure.models.config.repository import SandboxGrade
from perdure.models.delivery.decisions import Gate, PendingDecision
from perdure.models.delivery.result import DeliveryResult, Reason, Status
from perdure.models.errors import PerdureError
from perdure.models.limits import WATCH_EVERY_S
from perdure.models.rules.allowance import Limit
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from perdure.render.backlog.drawing import draw_graph
from perdure.render.backlog.report import BacklogReceipt
from perdure.render.backlog.text import change_lines, headline, status_lines
from perdure.render.progress_lines import RETRY, ProgressReporter, closing_lines
from perdure.render.step_lines import BAD
from perdure.secrets import within
from perdure.text import shell_word, visible

DEMO_TIMEOUT_S = 900.0
"""Seconds for a demo that nobody watches: twenty times what it takes, so that a build server is not kept for ever."""


@dataclass(frozen=True)
class DemoRun:
    """Everything that one run of the demo needs. `keys` None: nobody is there to press any. `killer_task`: the killer
    at work."""

    screen: Screen
    directories: DemoDirectories
    scenario: DemoScenario
    delivery: Delivery
    killer: WorkerKiller
    killer_task: asyncio.Task[None]
    supervisor: Process
    keys: TerminalKeys | None
    page: str


@dataclass(frozen=True)
class DemoOptions:
    """The options of the demo; see `perdure demo --help`."""

    keep: Path | None = None
    github: bool = False
    fast: bool = False
    kills: int = 0
    yes: bool = False
    json: bool = False
    backlog: bool = False
    agent: str | None = None


def run_demo(options: DemoOptions) -> int:
    """Play the demo and return the exit code: 0 when exactly one pull request came out of it.

    On a terminal a person may kill too, and it waits for Enter in the end. Ctrl-C, SIGTERM and SIGHUP end it, with 128
    and the signal's number as the code, and leave nothing unless a directory to keep was named.
    """
    return asyncio.run(_run_until_interrupted(options))


async def _run_until_interrupted(options: DemoOptions) -> int:
    """Play the demo that the options name, and return its exit code; 128 and the signal's number when SIGINT, SIGTERM
    or SIGHUP ended it.

    The first signal cancels the demo; later ones are ignored, so that they do not interrupt the tidying up. Raises
    PerdureError when the demo takes longer than DEMO_TIMEOUT_S, unless a person watches the demo of one delivery.
    """
    signals, loop, task = list[int](), asyncio.get_running_loop(), asyncio.current_task()
    screen, keep = Screen(json=options.json), options.keep
    assert task is not None

    def interrupt(number: int) -> None:
        signals.append(number)
        if len(signals) == 1:  # further ones would interrupt the tidying up
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt, number)
    is_interactive = not options.yes and screen.is_terminal and is_at_terminal()
    try:
        async with AsyncExitStack() as stack:
            if options.backlog:
                async with asyncio.timeout(DEMO_TIMEOUT_S):
                    return await play_backlog_demo(screen, options)
            keys = await stack.enter_async_context(TerminalKeys.read_terminal()) if is_interactive else None
            demo_run = await stack.enter_async_context(_open_demo_run(screen, keys, options))
            async with asyncio.timeout(None if is_interactive else DEMO_TIMEOUT_S):
                return await _play_to_end(demo_run)
    except TimeoutError:
        raise PerdureError(
            f"the demo did not end within {DEMO_TIMEOUT_S / 60:.0f} minutes", fix="perdure doctor"
        ) from None
    except asyncio.CancelledError:
        if not signals:
            raise
        screen.say("stopped; " + (f"what there is stays in {keep}" if keep else "nothing of it is left"))
        return 128 + signals[0]


@dataclass(frozen=True)
class DemoWorld:
    """All that a demo plays with. `worker`: the first one's pid; `grade`: of the sandbox, and why not full."""

    perdure: Perdure
    rehearsal: Rehearsal
    supervisor: Process
    worker: int
    grade: tuple[SandboxGrade, str]


@asynccontextmanager
async def open_world(
    directories: DemoDirectories,
    screenplay: Screenplay,
    variables: Mapping[str, str] = MappingProxyType({}),
    *,
    agent: str | None = None,
) -> AsyncIterator[DemoWorld]:
    """Start a scripted model that plays the screenplay, Temporal and a supervised worker; yield them, and end all with
    the block.

    Meanwhile this process has the demo's environment variables, with `variables` among them and, when `agent` names
    one, those that lead an agent with a command line to the model. Raises PerdureError when server or worker does not
    start.
    """
    async with AsyncExitStack() as stack:
        rehearsal = await stack.enter_async_context(Rehearsal(screenplay))
        grade = await asyncio.to_thread(find_best_grade)
        variables_of_demo = demo_variables(directories, rehearsal.url, grade[0], os.environ)
        stack.enter_context(
            within(
                variables_of_demo
                | dict(variables)
                | (cli_agent_variables(rehearsal.url, variables_of_demo) if agent else {})
            )
        )
        stack.push_async_callback(stop_server, directories.home)
        client = await connect_to_temporal(directories.home, start=True, say=lambda _: None)
        supervisor, worker = await stack.enter_async_context(run_supervisor(directories.home))
        yield DemoWorld(Perdure(client, directories.home.key()), rehearsal, supervisor, worker, grade)


@asynccontextmanager
async def _open_demo_run(screen: Screen, keys: TerminalKeys | None, options: DemoOptions) -> AsyncIterator[DemoRun]:
    """Make home, repository, forge, model, server and worker, all fresh, submit the delivery, print the opening lines
    and start the killer; yield all of that, and end it with the block.

    Raises BadInput when a directory or the scenario that was asked for cannot be had, and PerdureError when server or
    worker does not start.
    """
    open_scenario, kill_points = scenario_for(github=options.github), KILL_POINTS[: options.kills]
    screenplay = Screenplay.load(examples_directory() / f"{PACKAGE}.toml")
    async with AsyncExitStack() as stack:
        directories = stack.enter_context(open_directories(options.keep))
        scenario = await stack.enter_async_context(open_scenario(directories))
        screen.say(words.title_line(scenario))
        world = await stack.enter_async_context(
            open_world(
                directories,
                without_waiting(screenplay, kill_points) if options.fast else screenplay,
                scenario.variables,
                agent=options.agent,
            )
        )
        rehearsal, supervisor, worker = world.rehearsal, world.supervisor, world.worker
        grade, reason = world.grade
        submitted = await world.perdure.submit(
            {**scenario.submission, **({"agent": options.agent} if options.agent else {})}, id=scenario.id
        )
        page = await web_ui_url(directories.home, scenario.id)
        _print_lines(screen, words.opening_lines(directories, scenario, page, grade, reason))
        _print_lines(screen, ["", words.worker_line(worker, keys is not None), ""])
        killer = WorkerKiller(directories.home, worker, rehearsal, kill_points, screen.say)
        killer_task = asyncio.create_task(killer.kill_until_cancelled())
        try:
            yield DemoRun(
                screen, directories, scenario, submitted.delivery, killer, killer_task, supervisor, keys, page
            )
        finally:
            killer_task.cancel()


async def _play_to_end(demo_run: DemoRun) -> int:
    """Print the delivery's story to its end, then what came out of it, wait for Enter where a person watches, and
    return the exit code: 0 when it was delivered as exactly one pull request.

    A delivery that ended at a limit because of kills meanwhile is retried: killing is what a visitor is asked to do.
    Marks the demo's directories as finished, and prints the result as JSON when the screen is asked for that. Raises
    PerdureError when no worker can start.
    """
    screen, teller, kills_before = demo_run.screen, ProgressReporter(width=demo_run.screen.width), 0
    while True:
        watcher = DeliveryWatcher(
            demo_run.delivery,
            screen,
            reporter=teller,
            transform=AutomaticAnswers(demo_run).handle_description,
            look_s=WATCH_EVERY_S,
        )
        result = await _watch_to_end(demo_run, watcher)
        _print_lines(screen, ["", *closing_lines(result.model_copy(update={"next": ()}), watcher.elapsed_s), ""])
        if result.reason != Reason.LIMITS or demo_run.killer.kill_count == kills_before:
            break
        kills_before = demo_run.killer.kill_count
        await demo_run.delivery.retry()  # while it was prepared, before there is anything to be asked about
        _print_lines(screen, [words.RETRIED, ""])
    outcome = await asyncio.to_thread(demo_run.scenario.find_outcome)
    demo_run.directories.finished_file.touch()
    _print_lines(screen, [*outcome.lines, "", *words.ending_lines(demo_run.directories, demo_run.scenario)])
    if screen.json:
        screen.print_json(result.model_dump_json(indent=2))
    if demo_run.keys is not None:
        demo_run.keys.discard_pressed()
        _print_lines(screen, ["", *words.waiting_lines(outcome, demo_run.page)])
        await demo_run.keys.wait_for(*ENTER)
    return 0 if result.status == Status.DELIVERED and outcome.is_complete else 1


def _print_lines(screen: Screen, lines: Iterable[str]) -> None:
    """Print the lines as part of the story, which goes beside the answer: with --json that is the result alone."""
    for line in lines:
        screen.say(line)


class AutomaticAnswers:
    """The answers, given for the visitor, to what the kills make Perdure ask: whether a turn that has seen three
    workers die goes on, and for more money, because a reply that was cut off counts at its upper bound. The kills were
    asked for."""

    def __init__(self, demo_run: DemoRun) -> None:
        self._demo_run, self._answered_key = demo_run, ""
        self._answer_task: asyncio.Task[None] | None = None

    def handle_description(self, described: RunDescription) -> RunDescription:
        """Start to answer a question that the kills made Perdure ask, and print a line about it once.

        Returns the description without that question, so that nobody else is asked, and as WorkerKiller.observe returns
        it: the killer is shown every description, and takes out deaths, which it reports itself.
        """
        pending_decision = described.pending_decision
        if pending_decision is not None and pending_decision.gate in words.ASKED_BY_KILLS:
            described = replace(
                described, pending_decision=None
            )  # nobody else is asked: K at a question would be no kill
            if self._answer_task is None or self._answer_task.done():
                if pending_decision.key != self._answered_key:
                    unpriced = pending_decision.limit == Limit.PRICE
                    self._demo_run.screen.say(
                        words.UNPRICED if unpriced else words.ASKED_BY_KILLS[pending_decision.gate]
                    )
                self._answered_key = pending_decision.key
                self._answer_task = asyncio.create_task(self._send_answer(pending_decision))
        return self._demo_run.killer.observe(described)

    async def _send_answer(self, pending_decision: PendingDecision) -> None:
        """Send the decision: approve to go on after deaths or without a price, or add a dollar to the budget.

        A PerdureError is ignored: if the question still stands, it is answered again with the next description.
        """
        with contextlib.suppress(PerdureError):  # counted meanwhile, or asked again at the next look
            if pending_decision.limit == Limit.PRICE:
                await self._demo_run.delivery.approve(pending_decision.target, note="nothing is paid", by="demo")
            elif pending_decision.gate is Gate.BUDGET:
                await self._demo_run.delivery.add_budget(1, id=pending_decision.key, by="demo")
            else:
                await self._demo_run.delivery.approve(
                    pending_decision.target, note="the kills were asked for", by="demo"
                )


async def _watch_to_end(demo_run: DemoRun, watcher: DeliveryWatcher) -> DeliveryResult:
    """Watch the delivery to its end and return its result; meanwhile the key K kills the worker.

    Raises PerdureError when there can be no result, because no worker can start or their supervisor has ended.
    """
    if demo_run.keys is not None:
        demo_run.keys.handlers["k"] = lambda: demo_run.killer.kill_worker("killed by you")
    watch_task = asyncio.create_task(watcher.watch())
    supervisor_task = asyncio.create_task(demo_run.supervisor.wait())
    try:
        await asyncio.wait({watch_task, supervisor_task, demo_run.killer_task}, return_when=asyncio.FIRST_COMPLETED)
        if demo_run.killer_task.done():
            demo_run.killer_task.result()
        if not watch_task.done():
            log_tail = last_lines(Places(demo_run.directories.home).worker_log, lines=3)
            raise PerdureError(f"the worker's supervisor ended: {log_tail}")
        result = watch_task.result()
        assert result is not None, "watched to the end"
        return result
    finally:
        if demo_run.keys is not None:
            demo_run.keys.handlers.clear()
        for task in (watch_task, supervisor_task):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


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
    be looked at.

    Returns the exit code: 0 when every item is where it should be and the receipt has nothing but zeros. Raises
    PerdureError when server or worker does not start, and BadInput when the directory to keep cannot be used.
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
    """Print what changes, kill the worker under the first `kills` conditions, answer what deliveries ask and retry what
    blocks an item, until the backlog has ended.

    Returns the items that were blocked meanwhile, each with the one that blocked it. While no worker answers it goes on
    looking. Raises PerdureError when the supervisor has ended.
    """
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
        await asyncio.sleep(WATCH_EVERY_S / 2)


async def answer_questions(perdure: Perdure, progress: BacklogProgress) -> None:
    """Approve what the items of the backlog wait for, which the kills made Perdure ask; add a dollar where it asks for
    budget.

    Nothing else asks a person in this demo. Raises PerdureError when a decision does not count.
    """
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
        f"  export PERDURE_HOME={shell_word(directories.home.root)}",
        f"  {perdure} up --detach && {perdure} backlog report {BACKLOG_ID} --html night.html     # "
        f"{perdure} down ends it",
    ):
        screen.say(line)

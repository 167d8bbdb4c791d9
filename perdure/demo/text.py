"""The demo's words besides the story itself: who plays, what is real, and what came out of it."""

from __future__ import annotations

from perdure import __version__
from perdure.adapters.git.door import Git
from perdure.cli.look.chapters import STOPS
from perdure.cli.look.story import AGAIN, Header
from perdure.cli.words import short, typed_here
from perdure.demo.scene import DemoOutcome, DemoScene
from perdure.demo.stage import DemoDirectories
from perdure.models.config import SandboxGrade
from perdure.models.decisions import Gate
from perdure.text import one_line

_SANDBOXES = {
    SandboxGrade.FULL: "sandbox bubblewrap",
    SandboxGrade.REDUCED: "sandbox REDUCED (Landlock)",
    SandboxGrade.OFF: "sandbox OFF",
}

_SCRIPTED = "scripted: no key, no account, nothing is paid; costs are shown as if"

ASKED_BY_KILLS = {
    Gate.DEATHS: f"{STOPS} three deaths of one turn: Perdure asks whether to go on; here they were asked for, and the "
    "demo says yes",
    Gate.BUDGET: f"{STOPS} replies that were cut off count at their upper bound: Perdure asks for more money; here "
    "none is paid, and the demo adds $1",
}
UNPRICED = (
    f"{STOPS} the price of this agent's model is not in the table: Perdure asks before it goes on uncounted; here "
    "nothing is paid, and the demo says yes"
)
RETRIED = f"{AGAIN} it goes on from its last checkpoint"


def title(scene: DemoScene) -> str:
    return f"perdure {__version__} · demo: one {scene.wanted}, one pull request, and workers that get killed"


def opening(stage: DemoDirectories, scene: DemoScene, page: str, grade: SandboxGrade, why: str) -> list[str]:
    """The header of `deliver`, and what is special here. `why`: the reason for a sandbox weaker than full."""
    head = short(Git(git_dir=stage.origin).text("rev-parse", "main"))
    header = Header(
        version=__version__,
        delivery_id="",
        checkout="",
        target=scene.repository,
        base=f"main at {head}",
        settings=["perdure.toml on main", _SANDBOXES[grade]],
        watching=[page] if page else [],
    ).lines()[1:]
    lines = [
        *header,
        *(f"  {name:<13} {one_line(text)}" for name, text in (*scene.facts, ("model", _SCRIPTED))),
    ]
    if why:
        lines.append(f"{STOPS} {one_line(why)}; the demo goes on, for it only runs commands of its own")
    return lines


def worker(pid: int, person: bool) -> str:
    if person:
        return f"Worker {pid}. Kill me whenever you like: press K, or `kill -9 {pid}`"
    return f"Worker {pid}: it gets killed on the way"


def ending(stage: DemoDirectories, scene: DemoScene) -> list[str]:
    """Say what was real, and how to have the rest."""
    perdure = typed_here()
    look = [
        "",
        f"All of it is kept in {stage.root}, until the next demo. To look at it:",
        f"  export PERDURE_HOME={stage.home.root}",
        f"  {perdure} up --detach && {perdure} show {scene.id}",
        f"  {perdure} verify {scene.id}     # its receipt again; also report, diff, logs; {perdure} down ends it",
    ]
    return [*scene.twins, *(f"  {line.replace('perdure ', f'{perdure} ', 1)}" for line in scene.typed), *look]


def until_enter(outcome: DemoOutcome, page: str) -> list[str]:
    """Say what can still be opened, on a terminal, until a person has seen enough."""
    if not outcome.pages:
        return [f"The Web UI stays until you press Enter: {page}"]
    rows = {**outcome.pages, "Web UI": page}
    return ["These pages stay until you press Enter:", *(f"  {name:<16} {address}" for name, address in rows.items())]

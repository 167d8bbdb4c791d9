"""What the demo says besides the story itself: who plays, what is real, and what came out of it."""

from __future__ import annotations

from dataclasses import dataclass

from perdure import __version__
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.door import Git
from perdure.cli.chapters import STOPS
from perdure.cli.stage import PACKAGE, Stage
from perdure.cli.story import AGAIN, Header
from perdure.cli.words import clean, one_line, short
from perdure.models.config import SandboxGrade

ID = "durations-1h30m"

_BODY_LINES = 6
_SANDBOXES = {
    SandboxGrade.FULL: "sandbox bubblewrap",
    SandboxGrade.REDUCED: "sandbox REDUCED (Landlock)",
    SandboxGrade.OFF: "sandbox OFF",
}

_SCRIPTED = "scripted: no key, no account, nothing is paid; costs are shown as if"

THIRD_DEATH = (
    f"{STOPS} that turn has seen its worker die three times: such a turn ends a delivery, with everything kept"
)
RETRIED = f"{AGAIN} it goes on from its last checkpoint"


@dataclass(frozen=True)
class Pulls:
    """How many pull requests there are, and what is to be said about them."""

    count: int
    lines: list[str]


def opening(stage: Stage, page: str, grade: SandboxGrade, why: str) -> list[str]:
    """The header of `deliver`, and what is special here. `why`: the reason for a sandbox weaker than full."""
    head = short(Git(git_dir=stage.origin).text("rev-parse", "main"))
    request, *_ = stage.request().splitlines()
    header = Header(
        version=__version__,
        delivery_id="",
        checkout="",
        target=f"{PACKAGE}, a small Python package, fresh in {stage.origin}",
        base=f"main at {head}",
        settings=["perdure.toml on main", _SANDBOXES[grade]],
        watching=[page] if page else [],
    ).lines()[1:]
    lines = [
        *header,
        f"  {'request':<13} {request}",
        f"  {'model':<13} {_SCRIPTED}",
    ]
    if why:
        lines.append(f"{STOPS} {one_line(why)}; the demo goes on, for it only runs commands of its own")
    return lines


def worker(pid: int, person: bool) -> str:
    if person:
        return f"Worker {pid}. Kill me whenever you like: press K, or `kill -9 {pid}`"
    return f"Worker {pid}: it gets killed on the way"


def pull_requests(stage: Stage) -> Pulls:
    """Blocks on git."""
    forge, git = LocalForge(str(stage.origin)), Git(git_dir=stage.origin)
    found = forge.list()
    lines = ["No pull request was opened"] if not found else []
    for pull, _ in found:
        details = forge.show(pull.number)
        stat = git.text("diff", "--stat=72", f"main...{details.head_sha}")
        body = [line for line in clean(details.body).splitlines() if line.strip()][:_BODY_LINES]
        lines += [
            f"Pull request #{pull.number}  {one_line(pull.title)}",
            f"  take it  {clean(details.take)}",
            *(f"  {line}" for line in clean(stat).splitlines()),
            *(f"  │ {one_line(line, 100)}" for line in [*body, "…"]),
        ]
    return Pulls(len(found), lines)


def ending(stage: Stage) -> list[str]:
    """What was real, and how to have the rest."""
    kept = [f"Kept in {stage.root}: PERDURE_HOME={stage.home.root} perdure show {ID}"] if stage.kept else []
    return [
        "The model was scripted: its replies came from examples/durations.toml. Everything else was real: Temporal,",
        "HTTP, git, the sandbox, the tests, the kills. The same with a real model, in a repository of yours:",
        "  export ANTHROPIC_API_KEY=…",
        '  perdure deliver "what you want" --repo PATH',
        *kept,
    ]

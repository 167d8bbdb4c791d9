"""Arguments and options that several commands have, with the same names and help texts; which of them fill which field
of a request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.models.limits import ATTEMPTS_MOST

OPTION_OF_FIELD = {
    "repository": "repo",
    "budget_usd": "budget",
    "gates": "gate",
    "labels": "label",
    "questions": "no_questions",
}
"""By field of a request, the parameter that fills it, where they are named differently."""


def option_name(field: str) -> str:
    """Return the option that fills a field of a request, as it is typed: `--budget` for `budget_usd`."""
    return f"--{OPTION_OF_FIELD.get(field, field).replace('_', '-')}"


LAST = "@last"
WAITING = "@waiting"

At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Begin then: 23:00, 2026-11-23 23:00 Europe/Berlin; else UTC."),
]
Every = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="TIMES", help="Begin again and again: weekdays 23:00, mon,thu 09:30 Europe/Berlin."
    ),
]
Budget = Annotated[float | None, typer.Option("--budget", metavar="USD", min=0.01, help="The most it costs.")]
Tokens = Annotated[int | None, typer.Option("--tokens", metavar="N", min=1, help="The most tokens it uses.")]
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="One model for every step.")]
Agent = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="One agent for every step; perdure agents lists them.")
]
Attempts = Annotated[
    int | None,
    typer.Option(
        "--attempts", metavar="N", min=1, max=ATTEMPTS_MOST, help="Build the plan so often, and take the best one."
    ),
]
AfterRed = Annotated[
    bool, typer.Option("--after-red", help="The other attempts begin only when the first one is no good.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A perdure.toml to use instead of the base branch's."),
]
AllowTestChanges = Annotated[bool, typer.Option("--allow-test-changes", help="The request itself is about tests.")]
Gate = Annotated[
    list[str] | None,
    typer.Option("--gate", metavar="LIST", help="Wait for you before these: plan, pull_request, or both."),
]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME", help="Put on the pull request; budgets are shared by label. Repeatable."),
]
NoQuestions = Annotated[
    bool, typer.Option("--no-questions", help="The agent asks nobody: it decides, and says what it assumed.")
]
New = Annotated[bool, typer.Option("--new", help="Start another, although one of the same words runs.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Submit and leave.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Leave with exit code 4 when it has to wait.")]
DeliveryId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A delivery: its id, the beginning of it, or @last, the newest by start.", show_default=True
    ),
]
WaitingId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A delivery: its id, the beginning of it, @last, or @waiting: the only one that waits for this; or a "
        "backlog: its only item that waits.",
        show_default=True,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BacklogId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A backlog: its id, the beginning of it, or @last, the newest by start.", show_default=True
    ),
]
ItemId = Annotated[str, typer.Argument(metavar="ITEM", help="The item's id.")]

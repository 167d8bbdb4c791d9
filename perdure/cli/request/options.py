"""Options that `deliver` and `run` share: the same names, the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Budget = Annotated[float | None, typer.Option("--budget", metavar="USD", min=0.01, help="The most it costs.")]
Tokens = Annotated[int | None, typer.Option("--tokens", metavar="N", min=1, help="The most tokens it uses.")]
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="One model for every step.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A perdure.toml to use instead of the base branch's."),
]
AllowTestChanges = Annotated[bool, typer.Option("--allow-test-changes", help="The request itself is about tests.")]
Gates = Annotated[
    list[str] | None,
    typer.Option("--gate", metavar="LIST", help="Wait for you before these: plan, pull_request, or both."),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME", help="Put on the pull request; budgets are shared by label. Repeatable."),
]
NoQuestions = Annotated[
    bool, typer.Option("--no-questions", help="The agent asks nobody: it decides, and says what it assumed.")
]
New = Annotated[bool, typer.Option("--new", help="Start another, although one of the same words runs.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Submit and leave.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Leave with exit code 4 when it has to wait.")]

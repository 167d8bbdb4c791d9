"""`perdure rehearse`: a screenplay played on a Messages API of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def rehearse(
    file: Annotated[Path, typer.Argument(help="A screenplay: which reply to which conversation.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 0,
) -> None:
    """Play a model: a Messages API server that answers from a screenplay. Point ANTHROPIC_BASE_URL at it."""
    from perdure.rehearsal.server import run

    run(file, port)

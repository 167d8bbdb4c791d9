"""`perdure gc`: give back the disk that deliveries of long ago take."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from perdure.cli.screen import Screen
from perdure.cli.session import carry_out
from perdure.cli.words import count


def gc(
    days: Annotated[int, typer.Option("--days", min=0, max=timedelta.max.days, help="Since a delivery ended.")] = 90,
    unmerged: Annotated[bool, typer.Option("--unmerged", help="Also those whose commits are not merged.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove worktrees, checkpoints and artifacts of deliveries that ended long ago. What runs, and what was committed
    and is not merged, stays. Exit code 1 when something could not be removed."""
    from perdure.adapters.system.home import Home
    from perdure.local.connect import connect
    from perdure.local.retention import RetentionVerdict, collect

    screen, home = Screen(json=json), Home.find()

    async def run() -> tuple[list[RetentionVerdict], list[str], int]:
        client = await connect(home, start=False, say=screen.say)
        return await collect(client, home, timedelta(days=days), also_unmerged=unmerged, dry=dry_run)

    verdicts, problems, freed = carry_out(run())
    if json:
        told = [asdict(one) | {"ended": one.ended.isoformat() if one.ended else None} for one in verdicts]
        screen.data({"deliveries": told, "problems": problems, "freed_bytes": freed, "dry_run": dry_run})
    else:
        for one in verdicts:
            what = f"stays: {one.why}" if one.why else f"goes, with {count(one.refs, 'checkpoint and artifact ref')}"
            screen.line(f"{'·' if one.why else '✓'} {one.delivery}  {what}")
        screen.lines(f"! {problem}" for problem in problems)
        gone = sum(not one.why for one in verdicts)
        end = "nothing was removed (--dry-run)" if dry_run else f"{freed / 1024**2:.0f} MB freed"
        screen.line(f"{gone} of {count(len(verdicts), 'delivery', 'deliveries')} · {end}")
    raise typer.Exit(1 if problems else 0)

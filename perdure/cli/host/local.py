"""The commands for what runs on this host: `up`, `down`, `worker`, `gc`, `demo`.

Each imports what it runs: `worker` begins in a second, what the demo plays takes three to load.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import typer

from perdure.adapters.system.home import Home
from perdure.cli.event_loop import run_coroutine
from perdure.cli.screen import Screen
from perdure.local.checks import check_home
from perdure.local.places import worker_command, worker_environment
from perdure.secrets import environment, handed_over
from perdure.text import format_count


def up(detach: bool) -> None:
    """Start Temporal, a worker and the page for this home: until Ctrl-C, or with `detach` in the background.

    What runs already is kept. Raises BadInput when git is missing or the host's settings are wrong, and PerdureError
    when something does not start.
    """
    # A worker without git, or with settings that it cannot read, would be started again and again.
    import perdure.adapters.git.command  # noqa: F401
    from perdure.adapters.repository.host import load_host_config
    from perdure.local.up import bring_up as run

    load_host_config(os.environ)
    run_coroutine(run(Home.find(), detach, Screen().say))


def down() -> None:
    """End worker, page and server of this home."""
    from perdure.local.up import bring_down as run

    run_coroutine(run(Home.find(), Screen().say))


def worker(publisher: bool) -> None:
    """Replace this process by a worker of this home, as service managers and containers run one; never returns.

    `publisher`: it only publishes. The worker gets this process's secrets through a pipe. Raises BadInput when the home
    cannot be used, and PerdureError when worker.py is missing.
    """
    home = Home.find()
    check_home(home.root)
    command = worker_command()
    sys.stdout.flush()
    role = {"PERDURE_WORKER_ROLE": "publisher"} if publisher else {}
    with handed_over({**environment(), **role}) as (env, pipe):
        os.set_inheritable(pipe, True)
        os.execve(command[0], command, worker_environment(home, env))  # noqa: S606 - this process becomes it


def gc(days: int, unmerged: bool, dry_run: bool, json: bool) -> None:
    """Remove worktrees, checkpoints and artifacts of deliveries that ended `days` ago, and print a verdict on each, or
    JSON.

    What runs, and what was committed and is not merged, stays; the latter goes with `unmerged`. `dry_run`: only print.
    Raises typer.Exit, with code 1 when something could not be removed, TemporalUnreachable when the server does not
    run, and RPCError when it does not say whether a delivery runs.
    """
    from perdure.local.connect import connect_to_temporal
    from perdure.local.retention import RetentionVerdict, collect_garbage

    screen, home = Screen(json=json), Home.find()

    async def collect_in_home() -> tuple[list[RetentionVerdict], list[str], int]:
        client = await connect_to_temporal(home, start=False, say=screen.say)
        return await collect_garbage(client, home, timedelta(days=days), also_unmerged=unmerged, dry=dry_run)

    verdicts, problems, freed = run_coroutine(collect_in_home())
    if json:
        deliveries = [
            asdict(verdict) | {"ended": verdict.ended.isoformat() if verdict.ended else None} for verdict in verdicts
        ]
        screen.print_json({"deliveries": deliveries, "problems": problems, "freed_bytes": freed, "dry_run": dry_run})
    else:
        for verdict in verdicts:
            what = (
                f"stays: {verdict.why}"
                if verdict.why
                else f"goes, with {format_count(verdict.refs, 'checkpoint and artifact ref')}"
            )
            screen.print_line(f"{'·' if verdict.why else '✓'} {verdict.delivery}  {what}")
        screen.print_lines(f"! {problem}" for problem in problems)
        removed_count = sum(not verdict.why for verdict in verdicts)
        outcome = "nothing was removed (--dry-run)" if dry_run else f"{freed / 1024**2:.0f} MB freed"
        screen.print_line(f"{removed_count} of {format_count(len(verdicts), 'delivery', 'deliveries')} · {outcome}")
    raise typer.Exit(1 if problems else 0)


def demo(
    keep: Path | None,
    github: bool,
    backlog: bool,
    agent: str | None,
    fast: bool,
    kills: int,
    no_kill: bool,
    yes: bool,
    json: bool,
) -> None:
    """Play the demo of a delivery, or of a backlog, that survives kills of its worker; raise typer.Exit with its exit
    code.

    A scripted model replies: no key is needed. `no_kill` counts as no `kills`.
    """
    from perdure.demo.demos import DemoOptions
    from perdure.demo.demos import run_demo as run

    raise typer.Exit(run(DemoOptions(keep, github, fast, 0 if no_kill else kills, yes, json, backlog, agent)))

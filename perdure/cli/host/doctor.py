"""`perdure doctor`: what this host has, what it lacks, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer

from perdure.cli.host import checkups
from perdure.cli.host.agents import check_agents
from perdure.cli.host.checkups import Checkup
from perdure.cli.ids import Json
from perdure.cli.screen import Screen
from perdure.models.errors import PerdureError


def doctor(
    sandbox: Annotated[bool, typer.Option("--sandbox", help="Only run one command in the sandbox.")] = False,
    notify: Annotated[
        bool, typer.Option("--notify", help="Only send a test to every webhook; say what it answered.")
    ] = False,
    json: Json = False,
) -> None:
    """Check this host, and the repository you are in: every line says what to do. Exit code 1 when something needed
    is missing."""
    if notify:
        from perdure.cli.host.webhooks import try_notify

        checks: tuple[Callable[[], list[Checkup]], ...] = (try_notify,)
    else:
        checks = (checkups.check_sandbox,) if sandbox else _all()
    findings = [finding for check in checks for finding in _findings(check)]
    screen = Screen(json=json)
    if json:
        screen.data([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            screen.line(f"{finding.mark} {finding.name:<10} {finding.text}")
            screen.lines(f"  {'':<10} {line}" for line in finding.fix.splitlines())
    raise typer.Exit(1 if any(finding.mark == checkups.MISSING for finding in findings) else 0)


def _all() -> tuple[Callable[[], list[Checkup]], ...]:
    from perdure.cli.host.origin import check_repository
    from perdure.cli.host.webhooks import check_notify

    return (
        checkups.check_git,
        checkups.check_home,
        checkups.check_sandbox,
        checkups.check_room,
        checkups.check_key,
        check_agents,
        checkups.check_temporal,
        checkups.check_worker,
        checkups.check_deliveries,
        check_repository,
        checkups.check_browser,
        check_notify,
        checkups.check_variables,
    )


def _findings(check: Callable[[], list[Checkup]]) -> list[Checkup]:
    from perdure.cli.host.checkups import failed

    try:
        return check()
    except PerdureError as error:
        return [failed(check.__name__.rpartition("_")[2], error)]

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
        checks = (checkups.check_sandbox,) if sandbox else _list_checks()
    findings = [finding for check in checks for finding in _run_check(check)]
    screen = Screen(json=json)
    if json:
        screen.print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            screen.print_line(f"{finding.mark} {finding.name:<10} {finding.text}")
            screen.print_lines(f"  {'':<10} {line}" for line in finding.fix.splitlines())
    raise typer.Exit(1 if any(finding.mark == checkups.MISSING for finding in findings) else 0)


def _list_checks() -> tuple[Callable[[], list[Checkup]], ...]:
    """Return all checks in the order of their lines."""
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


def _run_check(check: Callable[[], list[Checkup]]) -> list[Checkup]:
    """Run one check and return its lines; an error that it raises becomes one of them."""
    from perdure.cli.host.checkups import failed_checkup

    try:
        return check()
    except PerdureError as error:
        return [failed_checkup(check.__name__.rpartition("_")[2], error)]

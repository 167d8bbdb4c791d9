"""Amounts as a person reads them: money, time, tokens, counts; pure functions."""

from __future__ import annotations

from pathlib import Path

from perdure.models.spans import span as span


def money(usd: float | None) -> str:
    """`$0.43`; an unknown cost is unknown, never zero."""
    if usd is None:
        return "cost unknown"
    return "<$0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def tokens(count: int) -> str:
    """`950`, `118k`, `1.2M`."""
    if count < 1000:
        return str(count)
    if count < 999_500:
        return f"{count / 1000:.0f}k"
    return f"{count / 1_000_000:.1f}M"


def count(number: int, one: str, many: str = "") -> str:
    """`1 turn`, `3 turns`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def short(sha: str) -> str:
    """A commit as people write it."""
    return sha[:7]


def tilde(path: Path) -> str:
    """A path with `~` for the home directory."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path != home and path.is_relative_to(home) else str(path)


def typed_here() -> str:
    """This very program as it is typed here: by its name, by its path where no directory of PATH has it, by Python."""
    import os
    import shlex
    import shutil
    import sys
    from pathlib import Path

    beside = Path(sys.executable).parent / "perdure"
    found = shutil.which("perdure")
    if found is not None and (not beside.exists() or Path(found).resolve() == beside.resolve()):
        return "perdure"
    if not beside.exists():
        return f"{shlex.quote(sys.executable)} -m perdure.cli"
    near = os.path.relpath(beside)
    return shlex.quote(near if not near.startswith("..") else str(beside))

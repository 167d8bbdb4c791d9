"""docs/turn.md draws a turn as it is: its functions exist where it says, and a real turn calls them in its order."""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from turn_fixtures import Bench

from perdure.models.crash import CrashPoint

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "turn.md").read_text(encoding="utf-8")
PICTURE = PAGE.partition("<!-- checked: turn -->\n```\n")[2].partition("```")[0]
DRAWN: list[tuple[str, str]] = re.findall(r"([\w.]+)\(\) +(\S+\.py)", PICTURE)
"""Function and file of each row."""

OUTSIDE = {"_run_to_outcome", "_run_activity", "_record_attempt", "record_end", "_record_turn"}
"""The functions before and after `take_turn`."""


def source(file: str) -> Path:
    named = (path for top in ("perdure", "workflows") for path in (ROOT / top).rglob(Path(file).name))
    (path,) = (path for path in named if path.as_posix().endswith(f"/{file}"))
    return path


def definitions(path: Path) -> set[str]:
    """Functions by their names, methods by class and name, and by name alone where the page leaves the class out."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if hasattr(part, "name")}
    return names


@pytest.mark.parametrize(("function", "file"), DRAWN)
def test_every_function_of_the_picture_stands_in_its_file(function: str, file: str) -> None:
    assert function in definitions(source(file))


def test_the_crash_points_of_the_picture_exist() -> None:
    named = re.findall(r"† ([a-z, -]+)", PICTURE)
    assert len(named) > 4
    assert {point.strip() for line in named for point in line.split(",")} <= set(CrashPoint)


@pytest.fixture
def called() -> Iterator[list[tuple[str, str]]]:
    """Calls of the picture's functions, each with its file, in threads that begin from now on as well."""
    calls, names = list[tuple[str, str]](), {function for function, _ in DRAWN}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_qualname in names:
            calls.append((frame.f_code.co_qualname, frame.f_code.co_filename))

    threading.setprofile(note)
    sys.setprofile(note)
    yield calls
    sys.setprofile(None)
    threading.setprofile(None)


async def test_a_turn_calls_the_functions_of_the_picture_in_its_order(
    called: list[tuple[str, str]], bench: Bench
) -> None:
    rows = [(function, str(source(file))) for function, file in DRAWN if function.rpartition(".")[2] not in OUTSIDE]
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    called.clear()  # the first turn of a run also makes the run's ref
    await bench.take(bench.work(2, first.checkpoint))
    assert list(dict.fromkeys(called)) == rows


@pytest.fixture
def asked_by() -> Iterator[list[list[str]]]:
    """The functions of ours on the stack each time the API's library is asked for a reply, the innermost first."""
    stacks = list[list[str]]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "post" and "anthropic/_base_client" in frame.f_code.co_filename:
            stack, caller = list[str](), frame.f_back
            while caller is not None:
                if "perdure/" in caller.f_code.co_filename and "site-packages" not in caller.f_code.co_filename:
                    stack.append(caller.f_code.co_qualname)
                caller = caller.f_back
            stacks.append(stack)

    sys.setprofile(note)
    yield stacks
    sys.setprofile(None)


async def test_eight_calls_lie_between_the_activity_and_the_model(asked_by: list[list[str]], bench: Bench) -> None:
    """A request passes twenty: with these, eight in the workflow (`Delivery.run` to `wait_for_activity`), and four
    around the activity (two interceptors)."""
    await bench.take(bench.work(1, bench.prepared.checkpoint))
    stack = asked_by[0]  # it is entered anew each time it goes on
    assert stack[-1] == "take_turn"
    assert len(stack) <= 8, stack

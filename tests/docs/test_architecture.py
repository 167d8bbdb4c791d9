"""The picture in docs/architecture.md is that of the sources, and what it and docs/children.md name exists."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
BOTH = TEXT + (ROOT / "docs" / "children.md").read_text(encoding="utf-8")


def drawn() -> dict[str, set[str]]:
    block = re.search(r"<!-- checked: arrows -->\n```\n(.*?)```", TEXT, re.DOTALL)
    assert block
    found = {}
    for line in filter(None, block[1].splitlines()):
        rooms, _, imported = line.partition("→")
        for room in rooms.split(","):
            found[room.strip()] = {one.strip() for one in imported.split(",")}
    return found


def room(module: str) -> str:
    """The name of a module's room: an adapter's package, a package of perdure, or a top-level one."""
    first, *more = module.split(".")
    if more[:1] == ["adapters"]:
        return more[1] if len(more) > 1 else ""
    return (
        (more[0] if more else "") if first == "perdure" else f"{first}.py" if first in ("worker", "starter") else first
    )


def imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def test_every_arrow_of_the_picture_is_an_import_and_every_import_is_an_arrow() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    packages = [file for top in ("perdure", "workflows", "activities") for file in (ROOT / top).rglob("*.py")]
    for file in (ROOT / "worker.py", ROOT / "starter.py", *packages):
        here = room(".".join(file.relative_to(ROOT).with_suffix("").parts))
        ours = (
            name for name in imported(file.read_text()) if name.split(".")[0] in ("perdure", "workflows", "activities")
        )
        found[here] |= {there for there in map(room, ours) if there not in ("", "__version__", here)}
    assert {name: there for name, there in found.items() if there} == drawn()


def test_every_file_and_directory_that_the_text_names_exists() -> None:
    tops = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    paths = [f"{path}/" for top in tops for path in (top, *top.rglob("*"))]
    names = set(re.findall(r"`([\w./-]+(?:\.py|\.md|\.toml|/))`", BOTH))
    assert len(names) > 50
    assert [name for name in names if not any(path.endswith(f"/{name.rstrip('/')}/") for path in paths)] == []


def test_every_function_class_and_table_that_the_text_names_exists() -> None:
    files = [file for top in ("perdure", "workflows", "activities") for file in (ROOT / top).rglob("*.py")]
    sources = "\n".join(file.read_text(encoding="utf-8") for file in (*files, ROOT / "tests" / "needs.py"))
    defined = set(re.findall(r"^ *(?:async )?(?:def |class )?(\w+)", sources, re.MULTILINE))
    names = set(re.findall(r"`([A-Z]\w+(?:\.\w+)?|[a-z_]+_[a-z_]+)`", BOTH)) - {"CHANGELOG.md", "PERDURE_HOME"}
    assert len(names) > 40
    assert sorted(name for name in names if not {*name.split(".")} <= defined) == []

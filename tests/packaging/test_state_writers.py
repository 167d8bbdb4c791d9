"""Only the workflow parts that the docstring of a piece of state names write it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from pydantic import BaseModel

from perdure.models.backlog.state import BacklogState, ItemState
from perdure.models.delivery.state import DeliveryState

ROOT = Path(__file__).parents[2]
STATES = (DeliveryState, BacklogState, ItemState)


def pieces() -> dict[str, list[type[BaseModel]]]:
    """By the name that a state gives it, the classes of that piece: those whose docstring says who writes it."""
    found: dict[str, list[type[BaseModel]]] = {}
    for state in STATES:
        for name, field in state.model_fields.items():
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, BaseModel) and "ritten by" in (kind.__doc__ or ""):
                found.setdefault(name, []).append(kind)
    return found


def test_a_piece_is_written_by_whom_its_docstring_names() -> None:
    known, strangers = pieces(), list[str]()
    assert len(known) > 15
    for path in sorted((ROOT / "workflows").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)):
                continue
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else ""
            kinds = [kind for kind in known.get(owner, []) if node.attr in kind.model_fields]
            if kinds and not any(f"workflows/{path.name}" in (kind.__doc__ or "") for kind in kinds):
                strangers.append(f"{path.name}:{node.lineno} writes {owner}.{node.attr}")
    assert strangers == []


def test_the_named_files_are_there() -> None:
    for kind in (kind for kinds in pieces().values() for kind in kinds):
        for name in re.findall(r"\b((?:workflows|perdure)/[\w/]+\.py)", kind.__doc__ or ""):
            assert (ROOT / name).exists(), f"{kind.__name__}: {name}"

"""A prepared workspace for tests, and states in which a test names a field without its piece."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from perdure.models.delivery.work import BaseCommit, PreparedWorkspace

M = TypeVar("M", bound=BaseModel)


def with_fields(model: M, **fields: Any) -> M:
    """A copy with these fields, each in the first piece that has one of its name. Raises TypeError where none has."""
    changes: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        pieces = ["", *(piece for piece in type(model).model_fields if isinstance(getattr(model, piece), BaseModel))]
        owners = [piece for piece in pieces if name in type(getattr(model, piece) if piece else model).model_fields]
        if not owners:
            raise TypeError(f"neither {type(model).__name__} nor a piece of it has a field {name}")
        changes.setdefault(owners[0], {})[name] = value
    own = changes.pop("", {})
    pieces_now = {piece: getattr(model, piece).model_copy(update=values) for piece, values in changes.items()}
    return model.model_copy(update=own | pieces_now)


def prepared_workspace(**fields: Any) -> PreparedWorkspace:
    """A workspace on queue `q`, of branch perdure/d on main, with these fields."""
    workspace = PreparedWorkspace(
        queue="q",
        contract="p",
        phases=(),
        head="b",
        branch="perdure/d",
        checkpoint="c",
        base_commit=BaseCommit(branch="main", sha="b"),
    )
    return with_fields(workspace, **fields)

"""A large request as items of a backlog: the answer of the step that decomposes it, and what a person edits of it."""

from __future__ import annotations

from pydantic import Field, model_validator

from perdure.models.backlog import BacklogItem
from perdure.models.base import UserInputModel
from perdure.models.errors import InvalidRequest
from perdure.models.rules.backlog import parse_backlog
from perdure.text import one_line


class Part(UserInputModel):
    """One item, as far as a model can know it."""

    id: str = Field(description="names it for people: lower case letters, digits and dashes, at most 40")
    request: str = Field(description="all that whoever builds it has to know of what is wanted; they see nothing else")
    depends_on: list[str] = Field(default=[], description="ids of the items that have to be there before it can begin")
    touches: list[str] = Field(default=[], description="files it will change, as in .gitignore: src/api/**")
    check: list[str] = Field(
        default=[], description="commands that have to end with 0 once it has landed, and ever after; seldom any"
    )
    role: str = Field(default="", description="backend, frontend, test or docs; empty where it does not matter")
    priority: int = Field(default=0, description="higher goes first among those that can begin; -100 to 100")

    @property
    def id_suffix(self) -> str:
        """Return the dependencies as they are shown behind the id, ` (after api)`; empty: it has none."""
        return f" (after {', '.join(self.depends_on)})" if self.depends_on else ""


class Decomposition(UserInputModel):
    """The answer of the decompose step. It is one a backlog can begin with: as in a file, but for what only people
    know."""

    items: list[Part]

    @model_validator(mode="after")
    def _check_items(self) -> Decomposition:
        """Return the decomposition. Raises ValueError where a backlog could not begin with these items."""
        try:
            self.to_items()
        except InvalidRequest as error:
            raise ValueError(error.what + (f" ({error.where})" if error.where else "")) from None
        return self

    def to_items(self) -> tuple[BacklogItem, ...]:
        """Return the parts as items of a backlog. Raises InvalidRequest, with the text that a file of items is refused
        with."""
        raw_items = [part.model_dump(mode="json", exclude_defaults=True) for part in self.items]
        return parse_backlog({"repository": "-", "items": raw_items}).items

    @property
    def title(self) -> str:
        """Return `3 items: api, page, docs`, with at most five ids."""
        number = len(self.items)
        more = ", …" if number > 5 else ""
        return f"{number} item{'s' if number != 1 else ''}: {', '.join(part.id for part in self.items[:5])}{more}"

    def to_text(self, max_bytes: int) -> str:
        """Return a line for each item with its id, dependencies and request, cut to `max_bytes` bytes and an "…"
        behind."""
        text = "\n".join(f"{part.id}{part.id_suffix}: {one_line(part.request, 300)}" for part in self.items)
        cut_text = text.encode()[:max_bytes].decode(errors="ignore")
        return cut_text if cut_text == text else cut_text + "…"

    def find_empty_field(self) -> str:
        """Return an empty string: no field that is needed can be empty, `_check_items` has seen to that."""
        return ""

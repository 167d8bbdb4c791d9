"""A large request as items of a backlog: the answer of the step that decomposes it, and what a person edits of it."""

from __future__ import annotations

from pydantic import Field, model_validator

from perdure.models.backlog import BacklogItem
from perdure.models.base import Written
from perdure.models.errors import InvalidRequest
from perdure.models.rules.backlog import parse_backlog
from perdure.text import one_line


class Part(Written):
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
    def terms(self) -> str:
        """Its dependencies as they stand behind its id, ` (after api)`; empty without any."""
        return f" (after {', '.join(self.depends_on)})" if self.depends_on else ""


class Decomposition(Written):
    """The answer of the decompose step. It is one a backlog can begin with: as in a file, but for what only people
    know."""

    items: list[Part]

    @model_validator(mode="after")
    def _sound(self) -> Decomposition:
        try:
            self.parsed()
        except InvalidRequest as error:
            raise ValueError(error.what + (f" ({error.where})" if error.where else "")) from None
        return self

    def parsed(self) -> tuple[BacklogItem, ...]:
        """InvalidRequest in the words that a file of items is refused with."""
        given = [part.model_dump(mode="json", exclude_defaults=True) for part in self.items]
        return parse_backlog({"repository": "-", "items": given}).items

    @property
    def title(self) -> str:
        """`3 items: api, page, docs`."""
        number = len(self.items)
        more = ", …" if number > 5 else ""
        return f"{number} item{'s' if number != 1 else ''}: {', '.join(part.id for part in self.items[:5])}{more}"

    def words(self, most: int) -> str:
        """A line for each, at most so many bytes."""
        text = "\n".join(f"{part.id}{part.terms}: {one_line(part.request, 300)}" for part in self.items)
        kept = text.encode()[:most].decode(errors="ignore")
        return kept if kept == text else kept + "…"

    def empty(self) -> str:
        """Nothing of it can be: see `_sound`."""
        return ""

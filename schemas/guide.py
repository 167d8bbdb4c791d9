"""The page beside the schemas: which is which, and how it travels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.catalogue import Shape


HEAD = """\
# Schemas

JSON Schema, draft 2020-12, of everything that is sent to a delivery and that comes out of it. Made from the models by
`make schema`, and checked: do not edit. How to send it: [submitting.md](../submitting.md).

## What you send

An unknown field is refused, and named with the nearest one that exists.
"""

BETWEEN = """
## What you get

As this version writes it. Later ones may add fields; none is renamed or goes away. Where an address like
`artifact:sha256:…` stands for an artifact, `perdure.client.Delivery.artifact` reads it.
"""


def guide(shapes: tuple[Shape, ...]) -> str:
    """Markdown: what is sent, what comes out."""
    sent, read = [shape for shape in shapes if shape.sent], [shape for shape in shapes if not shape.sent]
    return "\n".join([HEAD, *_table(sent), BETWEEN, *_table(read), ""])


def _table(shapes: list[Shape]) -> list[str]:
    rows = [
        f"| [`{shape.name}.json`]({shape.name}.json) | `{shape.model.__name__}` | {shape.how} |" for shape in shapes
    ]
    return ["| Schema | Shape | Travels as |", "|---|---|---|", *rows]

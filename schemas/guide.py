"""The page beside the schemas: which schema is which, and how its shape travels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.catalogue import PublishedShape


HEAD = """\
# Schemas

JSON Schema, draft 2020-12, of everything that is sent to a delivery and that comes out of it. Made from the models by
`make schema`, and checked: do not edit. How to send it: [submitting.md](../submitting.md).

Types: copy those for [TypeScript](../../examples/clients/typescript/perdure.ts),
[Go](../../examples/clients/go/perdure/types.go) or
[Java](../../examples/clients/java/src/main/java/perdure/Types.java), or generate them, as `make types` does and tries
([what they look like](../adr/0030-schemas-that-generators-give-types-to.md)):

| Language | Command |
|---|---|
| Go | `go-jsonschema -p perdure --tags json --struct-name-from-title -o request.go request.json` |
| Java | jsonschema2pojo, `useTitleAsClassname`; `inclusionLevel` `ALWAYS` where results are written again |
| Python | `datamodel-codegen --input request.json --output-model-type pydantic_v2.BaseModel --output request.py` |
| TypeScript | `json2ts -i request.json -o request.ts` |

Whole numbers are at most 2^53 − 1. An issue is a number or a text: `interface{}` in Go, `Object` in Java.

## What you send

An unknown field is refused, and named with the nearest one that exists.
"""

BETWEEN = """
## What you get

As this version writes it. Later ones may add fields; none is renamed or goes away. Where an address like
`artifact:sha256:…` stands for an artifact, `perdure.client.Delivery.artifact` reads it.
"""


def build_guide(shapes: tuple[PublishedShape, ...]) -> str:
    """Build the page as Markdown: what is sent, then what comes out."""
    inputs, outputs = [shape for shape in shapes if shape.sent], [shape for shape in shapes if not shape.sent]
    return "\n".join([HEAD, *_shape_table(inputs), BETWEEN, *_shape_table(outputs), ""])


def _shape_table(shapes: list[PublishedShape]) -> list[str]:
    """Return the lines of a Markdown table of shapes."""
    rows = [
        f"| [`{shape.name}.json`]({shape.name}.json) | `{shape.model.__name__}` | {shape.how} |" for shape in shapes
    ]
    return ["| Schema | Shape | Travels as |", "|---|---|---|", *rows]

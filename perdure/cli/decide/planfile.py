"""A plan as a file that a person edits: YAML with its texts as they read, and back; pure functions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import yaml  # type: ignore[import-untyped]  # has no types of its own
from pydantic import ValidationError

from perdure.cli.yaml_text import InvalidYaml, parse_location, parse_yaml
from perdure.models.decomposition import Decomposition, Part
from perdure.models.errors import BadInput
from perdure.models.plan import Plan, Task
from perdure.models.request import describe_invalid_field

_HEAD = """\
# The {what} of {id}, waiting for you. Change what you like, save and close: it is checked and put in the place of
# the old one. Close it unchanged, or empty it, and nothing is sent.
"""
_WIDTH = 110


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # likewise
    """Texts of several lines as blocks, lists indented under their names."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def editable(written: str, id: str) -> tuple[str, str]:
    """A plan as text to edit, and the file's ending: YAML; Markdown where it is in somebody's own words."""
    for shape, what in ((Plan, "plan"), (Decomposition, "items")):
        with suppress(ValueError):
            plan = shape.model_validate_json(written)
            fields = _trimmed(plan.model_dump(mode="json", exclude_defaults=True))
            body = yaml.dump(fields, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
            return _HEAD.format(id=id, what=what) + body, ".yaml"
    return written, ".md"


def parsed(text: str, *, markdown: bool) -> tuple[str, str]:
    """Return what was edited, as an artifact and its title. BadInput with line and field of what is wrong."""
    from perdure.cli.request.single_phase import plan_title

    if markdown:
        return text, plan_title(text)
    try:
        found = parse_yaml(text)
    except InvalidYaml as error:
        raise BadInput(f"line {error.line}: {error}" if error.line else str(error)) from None
    if not isinstance(found.data, dict):
        raise BadInput(f"line 1: a plan has fields: {', '.join(Plan.model_fields)}")
    shape: type[Plan | Decomposition] = Decomposition if "items" in found.data else Plan
    try:
        plan = shape.model_validate(found.data)
    except ValidationError as error:
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        words = describe_invalid_field(error, (*shape.model_fields, *(Task if shape is Plan else Part).model_fields))
        raise BadInput(f"line {found.line_of(first['loc'] or parse_location(words))}: {words}") from None
    if empty := plan.find_empty_field():
        raise BadInput(f"line {found.line_of((empty,))}: {empty}: is empty")
    return plan.model_dump_json(), plan.title


def blank(text: str) -> bool:
    """True where nothing is left of it but comments."""
    return not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())


def _trimmed(value: Any) -> Any:
    """Without spaces at the ends of lines: YAML could not show such a text as a block."""
    if isinstance(value, str):
        return "\n".join(line.rstrip() for line in value.expandtabs(4).split("\n")).strip("\n")
    if isinstance(value, list):
        return [_trimmed(one) for one in value]
    return {name: _trimmed(one) for name, one in value.items()} if isinstance(value, dict) else value

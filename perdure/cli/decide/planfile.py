"""A plan, or items, as a file that a person edits: YAML with its texts as they read, and back; pure functions."""

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


class _PlanDumper(yaml.SafeDumper):  # type: ignore[misc]  # likewise
    """A YAML dumper that writes texts of several lines as blocks and indents lists under their names."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Return the YAML node of a text: a block when it has several lines."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_PlanDumper.add_representer(str, _represent_text)


def to_editable(written: str, id: str) -> tuple[str, str]:
    """Return (text to edit, suffix of its file) of a stored plan or items: YAML with a head that says what to do, or
    the text itself as Markdown where it is in somebody's own words."""
    for model, what in ((Plan, "plan"), (Decomposition, "items")):
        with suppress(ValueError):
            plan = model.model_validate_json(written)
            fields = _strip_lines(plan.model_dump(mode="json", exclude_defaults=True))
            body = yaml.dump(fields, Dumper=_PlanDumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
            return _HEAD.format(id=id, what=what) + body, ".yaml"
    return written, ".md"


def parse_plan(text: str, *, markdown: bool) -> tuple[str, str]:
    """Parse an edited text and return (the plan or items as JSON, title); Markdown is returned as it is. Raises
    BadInput with line and field of what is wrong."""
    from perdure.cli.request.single_phase import plan_title

    if markdown:
        return text, plan_title(text)
    try:
        document = parse_yaml(text)
    except InvalidYaml as error:
        raise BadInput(f"line {error.line}: {error}" if error.line else str(error)) from None
    if not isinstance(document.data, dict):
        raise BadInput(f"line 1: a plan has fields: {', '.join(Plan.model_fields)}")
    model: type[Plan | Decomposition] = Decomposition if "items" in document.data else Plan
    try:
        plan = model.model_validate(document.data)
    except ValidationError as error:
        first_error = min(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
        message = describe_invalid_field(error, (*model.model_fields, *(Task if model is Plan else Part).model_fields))
        raise BadInput(f"line {document.line_of(first_error['loc'] or parse_location(message))}: {message}") from None
    if empty_field := plan.find_empty_field():
        raise BadInput(f"line {document.line_of((empty_field,))}: {empty_field}: is empty")
    return plan.model_dump_json(), plan.title


def is_blank(text: str) -> bool:
    """Return True when a text holds nothing but comments."""
    return not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())


def _strip_lines(value: Any) -> Any:
    """Return a value with every text in it without spaces at the ends of lines, tabs and empty lines around: YAML could
    not show such a text as a block."""
    if isinstance(value, str):
        return "\n".join(line.rstrip() for line in value.expandtabs(4).split("\n")).strip("\n")
    if isinstance(value, list):
        return [_strip_lines(element) for element in value]
    return {name: _strip_lines(element) for name, element in value.items()} if isinstance(value, dict) else value

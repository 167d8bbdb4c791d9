"""Files that people write: a strict reader of YAML which knows the line of everything in it; a backlog, and a plan or
items for `--edit`. Used by the commands and pages that take such texts."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml  # type: ignore[import-untyped]  # has no types of its own
from pydantic import ValidationError

from perdure.client.delivery.handle import Delivery
from perdure.models.delivery.request import describe_invalid_field
from perdure.models.delivery.steps import Decomposition, Part, Plan, Task, plan_title
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.limits import NESTING
from perdure.text import one_line

Location = tuple[int | str, ...]

_PATH = re.compile(r"([A-Za-z_][\w-]*(?:\.[\w-]+)*): ")

_PROSE = ("request", "title", "problem", "solution", "details")
"""Fields whose texts are sentences: nobody comments on them in their own line."""

_QUOTE_ADVICE = "quote a text that holds `: ` or ` #`, or begins with a sign"
"""The usual mend, where the parser only says which token it would have liked to see."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class _Loader(_Base):  # type: ignore[misc]  # likewise
    """A YAML loader in which words stay words: `no`, `on`, 010, 12:30 and 2026-01-05 are text, no switch, number or
    date."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {}
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        tag: made
        for tag, made in _Base.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("str", "int", "float", "bool", "null", "seq", "map")
    }


for _tag, _pattern, _first_characters in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?[0-9]+\.[0-9]*", "-+0123456789"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first_characters)
    )


class InvalidYaml(ValueError):
    """A text that is refused. `line`, counted from 1: where; 0: nowhere in particular."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True)
class YamlDocument:
    """A text's values, made of dicts, lists, str, int, float, bool and None only, and its tree of nodes with their
    lines."""

    data: Any
    node: yaml.Node | None

    def line_of(self, location: Location) -> int:
        """Return the line of the value at `location`, counted from 1; where it is missing, of what should hold it."""
        node, line = self.node, 1
        for part in location:
            if isinstance(node, yaml.MappingNode):
                entry = next(((key, value) for key, value in node.value if key.value == str(part)), None)
                if entry is None:
                    break
                line, node = entry[0].start_mark.line + 1, entry[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                break
        return line


def parse_location(message: str) -> Location:
    """Return the place that a message begins with: of `items.3.depends_on: there is no …`, ("items", 3, "depends_on").

    Empty where the message begins with none.
    """
    match = _PATH.match(message)
    return tuple(int(part) if part.isdecimal() else part for part in match[1].split(".")) if match else ()


def parse_yaml(text: str) -> YamlDocument:
    """Parse a YAML text.

    Raises InvalidYaml for what is not YAML, has a key twice or one that is no plain word, a text that ` #` would cut,
    refers to other parts of itself or is nested too deeply; with the line, or 0 where none is known.
    """
    text = text.removeprefix("\ufeff")
    try:
        _check_structure(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            _check_nodes(node, text.splitlines())
            return YamlDocument(loader.construct_document(node) if node is not None else None, node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = text.splitlines()[mark.line] if mark is not None and mark.line < len(text.splitlines()) else ""
        advice = "indent by blanks, not by tabs" if re.match(r"[ -]*\t", line) else _QUOTE_ADVICE
        what = f"this is not YAML: {error.problem or error.context}; {advice}"
        raise InvalidYaml(what, mark.line + 1 if mark is not None else 0) from None
    except InvalidYaml:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidYaml(f"this is not YAML: {str(error).partition(chr(10))[0]}") from None


def _check_structure(text: str) -> None:
    """Raise InvalidYaml for what would grow or recurse while it is loaded: anchors and aliases, and nesting deeper than
    NESTING.

    A few aliases that name each other can grow to a gigabyte.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InvalidYaml("write it out: &names and *names are not read", event.start_mark.line + 1)
        depth += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
        if depth > NESTING:
            raise InvalidYaml(f"it is nested deeper than {NESTING} levels", event.start_mark.line + 1)


def _check_nodes(node: yaml.Node | None, lines: list[str], name: str = "") -> None:
    """Raise InvalidYaml for a key that stands twice in one mapping or is no plain word, and for a text that ` #` cuts,
    anywhere below a node, the value of `name`.

    YAML would keep the last of two keys, and of `request: Fix #12 in the parser` the word `Fix`, in silence.
    """
    if isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _check_nodes(child, lines, name)
    elif isinstance(node, yaml.MappingNode):
        lines_by_key: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise InvalidYaml("a key has to be a word", line)
            if key.value in lines_by_key:
                raise InvalidYaml(f"{key.value}: is given twice, in line {lines_by_key[key.value]} too", line)
            lines_by_key[key.value] = line
            _check_nodes(value, lines, key.value)
    elif isinstance(node, yaml.ScalarNode) and not node.style and node.end_mark.line < len(lines):
        rest = lines[node.end_mark.line][node.end_mark.column :]
        is_word = len(node.value.split()) < 2 and name not in _PROSE
        is_text = name in _PROSE or node.tag.rpartition(":")[2] in ("str", "null")
        if is_text and rest.lstrip().startswith("#") and not (is_word and re.match(r"\s+#+(\s|$)", rest)):
            where = f"{name}: " if name else ""
            raise InvalidYaml(f"{where}everything from # on would be lost: quote it", node.end_mark.line + 1)


BACKLOG_BYTES = 1024 * 1024
"""Most bytes of a backlog's file: a thousand items of a thousand bytes. Temporal takes 2 MB as one argument, and a
backlog that goes on in a new run takes its items along with all that is known of them."""


@dataclass(frozen=True)
class BacklogFile:
    """A backlog as it was written, not checked yet.

    name      the file as the person named it
    raw       its fields
    document  the same with the line of each value
    """

    name: str
    raw: dict[str, Any]
    document: YamlDocument

    def locate_error(self, error: InvalidRequest) -> BadInput:
        """Convert an error about the request to one that names file, line and item.

        `items.3.reqest: unknown field` becomes `reqest: unknown field` at `night.yaml:12 item "page"`.
        """
        location, what, item_name = parse_location(error.what), error.what, ""
        if len(location) > 1 and location[0] == "items":
            key, message = ".".join(str(part) for part in location[2:]), error.what.partition(": ")[2]
            what = f"{key}: {message}" if key else message
            item_name = f" item {self._item_label(location[1])}"
        where = f"{self.name}:{self.document.line_of(location)}{item_name}"
        return BadInput(what, where=where, fix=error.fix or "correct this line, and start it again")

    def _item_label(self, number: int | str) -> str:
        """Return an item's id in quotes, or its place counted from 1, `#3`, when it has no id."""
        items = self.raw.get("items")
        item = items[number] if isinstance(items, list) and isinstance(number, int) and number < len(items) else None
        id = item.get("id") if isinstance(item, dict) else None
        return (
            f'"{one_line(id, 60)}"'
            if isinstance(id, str) and id
            else f"#{number + 1}"
            if isinstance(number, int)
            else number
        )


def parse_backlog_file(text: str, name: str) -> BacklogFile:
    """Parse a backlog's text; `name` is the file in errors.

    Raises BadInput, with file and line, for what is not YAML, has a key twice, or is not an object with fields.
    """
    try:
        document = parse_yaml(_json_as_yaml(text))
    except InvalidYaml as error:
        fix = "correct this line"
        raise BadInput(str(error), where=f"{name}:{error.line}" if error.line else name, fix=fix) from None
    if not isinstance(document.data, dict):
        raise BadInput("a backlog has fields", where=f"{name}:1", fix="repository: …, and items: with - id: …")
    return BacklogFile(name, document.data, document)


def _json_as_yaml(text: str) -> str:
    """Return a JSON text such that YAML reads it the same: no tabs, and a character that is written as two escapes
    joined.

    Any other text is returned unchanged.
    """
    if text.lstrip()[:1] != "{":
        return text
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return re.sub(r"(?i)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", _join_surrogates, text.replace("\t", " "))
    return text


def _join_surrogates(match: re.Match[str]) -> str:
    return bytes.fromhex(match[1] + match[2]).decode("utf-16-be")


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
    """Parse an edited text and return (the plan or items as JSON, title); Markdown is returned as it is.

    Raises BadInput with line and field when the text is no YAML, a field is wrong or unknown, or a required one is
    empty.
    """
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


async def fetch_editable_plan(delivery: Delivery) -> tuple[str, str, bool]:
    """Fetch the plan that waits and return (text to edit, suffix of its file, True when it is Markdown in somebody's
    own words).

    Read from the delivery's host: raises NoWorker, HostSilent or HostRefused when that does not answer, PerdureError
    when the plan arrives damaged.
    """
    progress = await delivery.progress()
    written = (await delivery.artifact(progress.plan, progress.queue)).decode(errors="replace")
    text, suffix = to_editable(written, delivery.id)
    return text, suffix, suffix == ".md"

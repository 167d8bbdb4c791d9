"""A strict reader of YAML that people wrote, which knows the line of everything in it; pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml  # type: ignore[import-untyped]  # has no types of its own

from perdure.models.limits import NESTING

Location = tuple[int | str, ...]

_PATH = re.compile(r"([A-Za-z_][\w-]*(?:\.[\w-]+)*): ")

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

    Raises InvalidYaml, with the line, for what is not YAML, has a key twice, refers to other parts of itself or is
    nested too deeply.
    """
    try:
        _check_structure(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            _check_duplicate_keys(node)
            return YamlDocument(loader.construct_document(node) if node is not None else None, node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"this is not YAML: {error.problem or error.context}"
        raise InvalidYaml(what, mark.line + 1 if mark is not None else 0) from None
    except InvalidYaml:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidYaml(f"this is not YAML: {str(error).partition(chr(10))[0]}") from None


def _check_structure(text: str) -> None:
    """Raise InvalidYaml for what would grow or recurse while it is loaded: anchors and aliases, and deep nesting.

    A few aliases that name each other are a gigabyte.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InvalidYaml("write it out: &names and *names are not read", event.start_mark.line + 1)
        depth += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
        if depth > NESTING:
            raise InvalidYaml(f"it is nested deeper than {NESTING} levels", event.start_mark.line + 1)


def _check_duplicate_keys(node: yaml.Node | None) -> None:
    """Raise InvalidYaml for a key that stands twice in one mapping: YAML would keep the last one and drop the other in
    silence."""
    if isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _check_duplicate_keys(child)
    elif isinstance(node, yaml.MappingNode):
        lines_by_key: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise InvalidYaml("a key has to be a word", line)
            if key.value in lines_by_key:
                raise InvalidYaml(f"{key.value}: is given twice, in line {lines_by_key[key.value]} too", line)
            lines_by_key[key.value] = line
            _check_duplicate_keys(value)

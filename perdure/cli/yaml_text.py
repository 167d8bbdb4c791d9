"""YAML that people wrote, with the line of everything in it; pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml  # type: ignore[import-untyped]  # has no types of its own

from perdure.models.limits import NESTING

Loc = tuple[int | str, ...]

_PATH = re.compile(r"([A-Za-z_][\w-]*(?:\.[\w-]+)*): ")

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class _Loader(_Base):  # type: ignore[misc]  # likewise
    """Words stay words: `no`, `on`, 010, 12:30 and 2026-01-05 are what was typed, no switch, number or date."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {}
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        tag: made
        for tag, made in _Base.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("str", "int", "float", "bool", "null", "seq", "map")
    }


for _tag, _words, _begins in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?[0-9]+\.[0-9]*", "-+0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_words})$"), list(_begins))


class NotRead(ValueError):
    """A text that is not read, and the line, counted from 1; 0: none in particular."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True)
class Yaml:
    """A text's values: dicts, lists, str, int, float, bool and None; nothing else."""

    data: Any
    node: yaml.Node | None

    def line(self, loc: Loc) -> int:
        """Of a field, counted from 1; of what should hold it, where it is missing."""
        node, line = self.node, 1
        for part in loc:
            if isinstance(node, yaml.MappingNode):
                found = next(((key, value) for key, value in node.value if key.value == str(part)), None)
                if found is None:
                    break
                line, node = found[0].start_mark.line + 1, found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                break
        return line


def loc_of(words: str) -> Loc:
    """The place of `items.3.depends_on: there is no …`; empty where they begin with none."""
    path = _PATH.match(words)
    return tuple(int(part) if part.isdecimal() else part for part in path[1].split(".")) if path else ()


def read(text: str) -> Yaml:
    """NotRead for what is not YAML, says a key twice, refers to other parts of itself or is nested too deeply."""
    try:
        _check(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            _check_keys(node)
            return Yaml(loader.construct_document(node) if node is not None else None, node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"this is not YAML: {error.problem or error.context}"
        raise NotRead(what, mark.line + 1 if mark is not None else 0) from None
    except NotRead:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotRead(f"this is not YAML: {str(error).partition(chr(10))[0]}") from None


def _check(text: str) -> None:
    """NotRead for what would grow or recurse when it is read: a name for a part (a few of them, naming each other,
    are a gigabyte), deep nesting."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise NotRead("write it out: &names and *names are not read", event.start_mark.line + 1)
        depth += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
        if depth > NESTING:
            raise NotRead(f"it is nested deeper than {NESTING} levels", event.start_mark.line + 1)


def _check_keys(node: yaml.Node | None) -> None:
    """NotRead for a key that stands twice in one place: YAML would keep the last one, and drop the other in silence."""
    if isinstance(node, yaml.SequenceNode):
        for one in node.value:
            _check_keys(one)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise NotRead("a key has to be a word", line)
            if key.value in seen:
                raise NotRead(f"{key.value}: is given twice, in line {seen[key.value]} too", line)
            seen[key.value] = line
            _check_keys(value)

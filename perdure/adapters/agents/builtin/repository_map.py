"""A map of a repository for the first message of a step: its languages, its tree, and the names its files define.

Names of Python are read by its own parser, those of JavaScript, TypeScript and Go from lines that begin with their
declaration, where formatters put what a file has at its top. Parsers of these were weighed: tree-sitter's grammars are
machine code that would run on strangers' files in the process that holds the key (those of its language pack also come
over the network at first use); universal-ctags is a program that few hosts have, and maps have to be equal on all.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from perdure.text import one_line, shortened

MAP_BYTES = 8_000
"""Of the whole map, some 2,500 tokens: two look-ups with their replies cost as much."""

MAP_FILES_READ, MAP_FILE_BYTES = 200, 60_000
"""Files whose names are looked for, and the largest of them: a second of a processor at most, 40 ms for one file."""

_TREE_SHARE = 0.6
"""Of the map, where there are names to tell, too."""

_NAMES_IN_DIRECTORY = 40
_NAME_CHARS = 80
_SYMBOL_CHARS, _SYMBOL_CHARS_LEAST = 200, 40
"""For the names of one file: fewer where many files have some."""

_FOLDED = frozenset(("node_modules", "vendor", "third_party", "dist", "build", "site-packages", ".venv", "venv"))
"""Directories of what was not written here: counted, not shown."""

_LANGUAGES = {
    "Python": ".py .pyi",
    "JavaScript": ".js .mjs .cjs .jsx",
    "TypeScript": ".ts .tsx .mts .cts",
    "Go": ".go",
    "Rust": ".rs",
    "Java": ".java",
    "Kotlin": ".kt .kts",
    "C": ".c .h",
    "C++": ".cc .cpp .cxx .hpp",
    "C#": ".cs",
    "Ruby": ".rb",
    "PHP": ".php",
    "Swift": ".swift",
    "Scala": ".scala",
    "Elixir": ".ex .exs",
    "Shell": ".sh .bash",
    "SQL": ".sql",
    "HTML": ".html .htm",
    "CSS": ".css .scss .less",
    "Vue": ".vue",
    "Svelte": ".svelte",
    "Markdown": ".md",
}
_LANGUAGE_OF = {suffix: name for name, suffixes in _LANGUAGES.items() for suffix in suffixes.split()}

_SCRIPT = re.compile(
    rb"^export (?:default )?(?:declare )?(?:abstract )?(?:async )?"
    rb"(function\*?|class|interface|type|enum|namespace|const|let) ([A-Za-z_$][\w$]{0,99})",
    re.MULTILINE,
)
_GO = re.compile(rb"^(func|type) (?:\(\w{0,99} ?\*?(\w{1,99})[^)\n]{0,200}\) )?([A-Z]\w{0,99})", re.MULTILINE)
"""Declarations that other files can use. Nothing in these repeats without a bound: once a line, on any file."""

_NAMED = (".py", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".mts", ".cts", ".go")

Read = Callable[[Sequence[str]], Mapping[str, bytes]]
"""Contents by path of some files; without those that are not there or larger than MAP_FILE_BYTES."""


@dataclass
class _Directory:
    files: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    count: int = 0


def mapped(paths: Iterable[str], read: Read) -> str:
    """The map, at most MAP_BYTES; equal bytes for equal files. `paths` of all files, relative to the top.

    A repository without files has none: empty.
    """
    shown = sorted(path for path in paths if path)
    if not shown:
        return ""
    directories = _directories(shown)
    title = _languages(shown)
    room = MAP_BYTES - len(title.encode()) - 1
    named = any(path.endswith(_NAMED) for path in shown)
    opened = _opened(directories, int(room * (_TREE_SHARE if named else 1)))
    room -= sum(_size(_block(directories, name, {})) for name in opened)
    names = _names(directories, opened, read, room)
    blocks = [_block(directories, name, names) for name in sorted(opened)]
    return "\n".join([title, *(line for block in blocks for line in block)])


def _directories(paths: Sequence[str]) -> dict[str, _Directory]:
    """By path, the top as the empty one."""
    found: dict[str, _Directory] = defaultdict(_Directory)
    for path in paths:
        parent, _, _ = path.rpartition("/")
        found[parent].files.append(path)
        while True:
            found[parent].count += 1
            if not parent:
                break
            above = parent.rpartition("/")[0]
            if found[parent].count == 1:
                found[above].below.append(parent)
            parent = above
    return found


def _languages(paths: Sequence[str]) -> str:
    counts = Counter(_LANGUAGE_OF.get(PurePosixPath(path).suffix.lower(), "other") for path in paths)
    other = counts.pop("other", 0)
    named = [f"{name} {count}" for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]
    said = ", ".join([*named, *([f"other {other}"] if other else [])])
    return f"{len(paths)} files: {said}."


def _opened(directories: Mapping[str, _Directory], room: int) -> set[str]:
    """The directories whose files are shown: the top first, then by depth, as many as there is room for."""
    opened: set[str] = set()
    for name in sorted(directories, key=lambda name: (name.count("/") + bool(name), name)):
        above, _, last = name.rpartition("/")
        if name and (above not in opened or last in _FOLDED):
            continue
        size = _size(_block(directories, name, {}))
        if name and size > room:
            continue
        opened.add(name)
        room -= size
    return opened


def _block(directories: Mapping[str, _Directory], name: str, names: Mapping[str, str]) -> list[str]:
    """The lines of one directory: files with their names one a line, the others in one line, then what is below."""
    here = directories[name]
    told = [f"  {_last(path)}: {names[path]}" for path in here.files if path in names]
    plain = [_last(path) for path in here.files if path not in names]
    more = len(plain) - _NAMES_IN_DIRECTORY
    line = " ".join(plain[:_NAMES_IN_DIRECTORY]) + (f" and {more} more" if more > 0 else "")
    below = [f"{_last(path)}/ ({directories[path].count})" for path in here.below[:_NAMES_IN_DIRECTORY]]
    hidden = len(here.below) - _NAMES_IN_DIRECTORY
    under = " ".join(below) + (f" and {hidden} more directories" if hidden > 0 else "")
    title = f"{one_line(name, 4 * _NAME_CHARS)}/" if name else "./"
    return [title, *told, *([f"  {line}"] if line else []), *([f"  {under}"] if under else [])]


def _last(path: str) -> str:
    return one_line(path.rpartition("/")[2], _NAME_CHARS)


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def _names(directories: Mapping[str, _Directory], opened: set[str], read: Read, room: int) -> dict[str, str]:
    """The names that files define, by path: the product's first, then tests', as many as there is room for."""
    wanted = [path for name in opened for path in directories[name].files if path.endswith(_NAMED)]
    wanted.sort(key=lambda path: (_of_tests(path), path.count("/"), path))
    contents = read(wanted[:MAP_FILES_READ])
    defined = {path: found for path in wanted if (found := list(symbols(path, contents.get(path, b""))))}
    if not defined:
        return {}
    chars = min(_SYMBOL_CHARS, max(_SYMBOL_CHARS_LEAST, room // len(defined) - _NAME_CHARS // 4))
    told: dict[str, str] = {}
    for path, found in defined.items():
        words = shortened(", ".join(found), chars)
        room -= _size([f"  {_last(path)}: {words}"])
        if room < 0:
            break
        told[path] = words
    return told


def _of_tests(path: str) -> bool:
    *_, last = parts = path.split("/")
    beside = re.search(r"_test\.(py|go)$|\.(test|spec)\.\w+$", last)
    return bool(beside) or any(part.startswith(("test", "__tests__")) for part in parts)


def symbols(path: str, data: bytes) -> Iterator[str]:
    """The public names at the top of a file, by its ending: `function()`, `Class(method, method)`. None where it is too
    large, or Python that does not parse."""
    if len(data) > MAP_FILE_BYTES:
        return
    if path.endswith(".go"):
        yield from _of_go(data)
        return
    if not path.endswith(".py"):
        for found in _SCRIPT.finditer(data):
            yield found[2].decode() + ("()" if found[1].startswith(b"function") else "")
        return
    try:
        body = ast.parse(data).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in _public(body):
        if not isinstance(node, ast.ClassDef):
            yield f"{node.name}()"
        else:
            methods = [one.name for one in _public(node.body) if not isinstance(one, ast.ClassDef)]
            yield f"{node.name}({', '.join(methods)})" if methods else node.name


def _of_go(data: bytes) -> Iterator[str]:
    """Functions and types; methods stand with their type, those of one from another file as well."""
    methods: dict[str, list[str]] = {}
    for found in _GO.finditer(data):
        kind, of, name = (part.decode() if part else "" for part in found.groups())
        if kind == "func" and not of:
            methods.setdefault(f"{name}()", [])
        elif kind == "type" or of[:1].isupper():
            methods.setdefault(of or name, []).extend([name] if of else [])
    yield from (f"{name}({', '.join(below)})" if below else name for name, below in methods.items())


def _public(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node

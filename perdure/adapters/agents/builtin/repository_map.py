"""A map of a repository for the first message of a step: its languages, its tree, and the names its files define. The
turns' materials use it and read the files from git.

Names of Python are found by its own parser, those of JavaScript, TypeScript and Go in lines that begin with their
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

from perdure.text import one_line, shorten

MAP_BYTES = 8_000
"""The most bytes of the whole map, some 2,500 tokens: two look-ups with their replies cost as much."""

MAP_FILES_READ, MAP_FILE_BYTES = 200, 60_000
"""Files in which names are looked for, and the size of the largest: a second of a processor at most, 40 ms for one
file."""

_TREE_SHARE = 0.6
"""The tree's share of the map, where there are names to show, too."""

_NAMES_IN_DIRECTORY = 40
_NAME_CHARS = 80
_SYMBOL_CHARS, _SYMBOL_CHARS_LEAST = 200, 40
"""Characters for the names of one file, and the fewest, where many files have names."""

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
"""The patterns of declarations that other files can use. Nothing in them repeats without a bound, and each matches once
a line, on any file."""

_NAMED = (".py", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".mts", ".cts", ".go")

ReadFiles = Callable[[Sequence[str]], Mapping[str, bytes]]
"""A function that returns the contents of some files by path, without files that are missing or larger than
MAP_FILE_BYTES."""


@dataclass
class _Directory:
    """A directory: its files, the directories directly below it, and the number of all files in and below it."""

    files: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    count: int = 0


def build_map(paths: Iterable[str], read_files: ReadFiles) -> str:
    """Return the map, at most MAP_BYTES; equal bytes for equal files. It is empty for a repository without files.

    paths       of all files, relative to the top
    read_files  reads those in which names are looked for
    """
    listed = sorted(path for path in paths if path)
    if not listed:
        return ""
    directories = _group_by_directory(listed)
    title = _languages_line(listed)
    remaining_bytes = MAP_BYTES - len(title.encode()) - 1
    has_names = any(path.endswith(_NAMED) for path in listed)
    open_directories = _choose_directories(directories, int(remaining_bytes * (_TREE_SHARE if has_names else 1)))
    remaining_bytes -= sum(_byte_size(_directory_lines(directories, name, {})) for name in open_directories)
    names = _names_by_path(directories, open_directories, read_files, remaining_bytes)
    blocks = [_directory_lines(directories, name, names) for name in sorted(open_directories)]
    return "\n".join([title, *(line for block in blocks for line in block)])


def _group_by_directory(paths: Sequence[str]) -> dict[str, _Directory]:
    """Return the directories of these files by path, the top as the empty path."""
    directories: dict[str, _Directory] = defaultdict(_Directory)
    for path in paths:
        parent, _, _ = path.rpartition("/")
        directories[parent].files.append(path)
        while True:
            directories[parent].count += 1
            if not parent:
                break
            grandparent = parent.rpartition("/")[0]
            if directories[parent].count == 1:
                directories[grandparent].below.append(parent)
            parent = grandparent
    return directories


def _languages_line(paths: Sequence[str]) -> str:
    """Return the map's first line: how many files there are, and how many of each language, the most first."""
    counts = Counter(_LANGUAGE_OF.get(PurePosixPath(path).suffix.lower(), "other") for path in paths)
    other = counts.pop("other", 0)
    parts = [f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    summary = ", ".join([*parts, *([f"other {other}"] if other else [])])
    return f"{len(paths)} files: {summary}."


def _choose_directories(directories: Mapping[str, _Directory], remaining_bytes: int) -> set[str]:
    """Return the directories whose files are shown: always the top, then by depth, as many as there is room for in
    bytes; only where the parent is shown, and not those in _FOLDED."""
    chosen: set[str] = set()
    for name in sorted(directories, key=lambda name: (name.count("/") + bool(name), name)):
        parent, _, last = name.rpartition("/")
        if name and (parent not in chosen or last in _FOLDED):
            continue
        size = _byte_size(_directory_lines(directories, name, {}))
        if name and size > remaining_bytes:
            continue
        chosen.add(name)
        remaining_bytes -= size
    return chosen


def _directory_lines(directories: Mapping[str, _Directory], name: str, names: Mapping[str, str]) -> list[str]:
    """Return the lines of one directory: its path, files with their names one a line, the other files in one line, then
    the directories below it; of the last two at most _NAMES_IN_DIRECTORY, and how many more there are."""
    directory = directories[name]
    named_lines = [f"  {_base_name(path)}: {names[path]}" for path in directory.files if path in names]
    plain = [_base_name(path) for path in directory.files if path not in names]
    more_files = len(plain) - _NAMES_IN_DIRECTORY
    line = " ".join(plain[:_NAMES_IN_DIRECTORY]) + (f" and {more_files} more" if more_files > 0 else "")
    below = [f"{_base_name(path)}/ ({directories[path].count})" for path in directory.below[:_NAMES_IN_DIRECTORY]]
    more_directories = len(directory.below) - _NAMES_IN_DIRECTORY
    below_line = " ".join(below) + (f" and {more_directories} more directories" if more_directories > 0 else "")
    title = f"{one_line(name, 4 * _NAME_CHARS)}/" if name else "./"
    return [title, *named_lines, *([f"  {line}"] if line else []), *([f"  {below_line}"] if below_line else [])]


def _base_name(path: str) -> str:
    """Return a path's last part on one line, at most _NAME_CHARS characters."""
    return one_line(path.rpartition("/")[2], _NAME_CHARS)


def _byte_size(lines: Sequence[str]) -> int:
    """Return the size of these lines in bytes, with their line ends."""
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def _names_by_path(
    directories: Mapping[str, _Directory], open_directories: set[str], read_files: ReadFiles, remaining_bytes: int
) -> dict[str, str]:
    """Return the names that files define, by path, each as one text, cut where there are many; the product's files
    first, then tests', as many as there is room for in bytes. At most MAP_FILES_READ files are read, by
    `read_files`."""
    candidates = [path for name in open_directories for path in directories[name].files if path.endswith(_NAMED)]
    candidates.sort(key=lambda path: (_is_test_file(path), path.count("/"), path))
    contents = read_files(candidates[:MAP_FILES_READ])
    defined = {path: names for path in candidates if (names := list(public_names(path, contents.get(path, b""))))}
    if not defined:
        return {}
    chars = min(_SYMBOL_CHARS, max(_SYMBOL_CHARS_LEAST, remaining_bytes // len(defined) - _NAME_CHARS // 4))
    shown: dict[str, str] = {}
    for path, names in defined.items():
        text = shorten(", ".join(names), chars)
        remaining_bytes -= _byte_size([f"  {_base_name(path)}: {text}"])
        if remaining_bytes < 0:
            break
        shown[path] = text
    return shown


def _is_test_file(path: str) -> bool:
    """Return whether a path looks like a test's: by its file's ending, or a part that begins with `test`."""
    *_, last = parts = path.split("/")
    test_suffix = re.search(r"_test\.(py|go)$|\.(test|spec)\.\w+$", last)
    return bool(test_suffix) or any(part.startswith(("test", "__tests__")) for part in parts)


def public_names(path: str, data: bytes) -> Iterator[str]:
    """Yield the public names at the top of a file, by its ending (.py, .go, any other as JavaScript): `function()`,
    `Class(method, method)`. Nothing is yielded where the file is too large, or is Python that does not parse."""
    if len(data) > MAP_FILE_BYTES:
        return
    if path.endswith(".go"):
        yield from _go_names(data)
        return
    if not path.endswith(".py"):
        for match in _SCRIPT.finditer(data):
            yield match[2].decode() + ("()" if match[1].startswith(b"function") else "")
        return
    try:
        body = ast.parse(data).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in _public_definitions(body):
        if not isinstance(node, ast.ClassDef):
            yield f"{node.name}()"
        else:
            methods = [member.name for member in _public_definitions(node.body) if not isinstance(member, ast.ClassDef)]
            yield f"{node.name}({', '.join(methods)})" if methods else node.name


def _go_names(data: bytes) -> Iterator[str]:
    """Yield the public functions and types of a Go file; methods stand with their type, also where that is in another
    file."""
    methods: dict[str, list[str]] = {}
    for match in _GO.finditer(data):
        kind, receiver, name = (part.decode() if part else "" for part in match.groups())
        if kind == "func" and not receiver:
            methods.setdefault(f"{name}()", [])
        elif kind == "type" or receiver[:1].isupper():
            methods.setdefault(receiver or name, []).extend([name] if receiver else [])
    yield from (f"{name}({', '.join(members)})" if members else name for name, members in methods.items())


def _public_definitions(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield the functions and classes among these statements whose names do not begin with an underscore."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node

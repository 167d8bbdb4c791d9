"""Changes of product files that cannot tell by which run they are asked: nothing that is new in them leads out of the
product's own values.

This decides nothing about a change. Where it is not told of one, the base's tests have a run of their own.
"""

from __future__ import annotations

import ast
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence

_LINE_CHARS = 1_000

_WORDS = re.compile(r".*\.(md|rst|txt|css|svg|po|csv)|(?:.*/)?(LICENSE|CHANGELOG|README)[^/]*")
"""Files of a product that no language runs."""

_PYTHON = re.compile(
    r"\b_*(sys|os|io|gc|nt|posix|inspect|linecache|tokenize|codecs|types|builtins|importlib|runpy|pkgutil|ctypes"
    r"|signal|thread|threading|multiprocessing|concurrent|subprocess|asyncio|atexit|weakref|pickle|marshal|shelve"
    r"|copyreg|pdb|bdb|unittest|pytest|pluggy|mock|conftest|tests?|hypothesis|pathlib|Path|glob|shutil|socket|mmap"
    r"|eval|exec|compile|globals|locals|vars|dir|open|getattr|setattr|delattr|modules|argv|environ|getenv|stdin|stdout"
    r"|stderr|meta_path|mro|attrgetter|methodcaller|format|format_map|coding|stacklevel|findCaller|Formatter|breakpoint"
    r"|exit|quit|SystemExit|KeyboardInterrupt|BaseException|AssertionError|get_type_hints|ForwardRef|evaluate"
    r"|urlopen|urlretrieve)\b|urllib\.(?!parse\b)"
    r"|(?i:frame|stack|trace|excepthook|last_|exc_|import_module|entry_point|annotations\()"
    r"|__(?!all|future|init|new|post_init|name|doc|version|slots|repr|str|len|iter|next|contains|hash|lt|le|gt|ge|add|sub"
    r"|mul|truediv|neg|enter|exit|call|getitem|setitem|delitem)\w+__"
)
"""Words, anywhere in a line: modules, functions and names inside of values that lead to the interpreter, to files, to
other threads, to whoever called."""

_PLAIN = frozenset(
    ("__future__", "abc", "array", "base64", "bisect", "calendar", "collections", "contextlib", "copy", "dataclasses",
     "datetime", "decimal", "difflib", "enum", "fnmatch", "fractions", "functools", "hashlib", "heapq", "hmac", "html",
     "itertools", "json", "keyword", "math", "numbers", "random", "re", "secrets", "statistics", "string", "struct",
     "textwrap", "time", "typing", "typing_extensions", "unicodedata", "urllib", "uuid", "zlib", "zoneinfo")
)  # fmt: skip
"""Modules that a change may begin to use."""


_GO = re.compile(
    r"\b(os|runtime|reflect|unsafe|testing|flag|syscall|plugin|debug|exec|ioutil|fs|embed|net|http|signal|log|slog|pprof"
    r"|trace|expvar|filepath|template|build|bufio|io|C|linkname|recover|Getenv|Environ|Args|Executable|Lookup|Open|Exit)\b"
    r"|Caller|Stack|FuncFor|Goroutine|ReadFile|ReadDir|Print|//go:|//export|//line|/\*line|(?i:cgo)"
)
_GO_PLAIN = frozenset(
    ("bytes", "cmp", "container/heap", "container/list", "context", "crypto/sha256", "encoding/base64", "encoding/hex",
     "encoding/json", "errors", "fmt", "hash/fnv", "iter", "maps", "math", "math/big", "math/bits", "math/rand",
     "regexp", "slices", "sort", "strconv", "strings", "sync", "time", "unicode", "unicode/utf8")
)  # fmt: skip
_GO_IMPORT = re.compile(
    r'^[ \t]*(?:import[ \t]+)?(?:([\w.]+)[ \t]+)?["`]([^"`\s]+)["`][ \t]*;?[ \t]*(?://.*)?$', re.MULTILINE
)


def go(path: str, before: str, after: str) -> bool:
    """See Runner.is_blind."""
    if _WORDS.fullmatch(path):
        return True
    if not path.endswith(".go"):
        return False
    was, now = (
        {alias or name.rpartition("/")[2]: name for alias, name in _GO_IMPORT.findall(text)} for text in (before, after)
    )
    if any(was.get(alias) != name and name not in _GO_PLAIN for alias, name in now.items()):
        return False
    watching = {alias for alias, name in now.items() if name not in _GO_PLAIN and "." not in name.partition("/")[0]}
    lines = new_lines(before, after)
    words = {word for line in lines for word in re.findall(r"\w+", line)}
    return words.isdisjoint(watching) and not _found(_GO, lines)


_JAVASCRIPT = re.compile(
    r"\b(process|globalThis|global|window|self|eval|Function|constructor|prototype|__\w+|Proxy|Reflect|arguments|callee"
    r"|caller|set\w*|queueMicrotask|nextTick|Symbol|WeakRef|FinalizationRegistry|fs|tests?|describe|assert|performance"
    r"|console|define\w*|getOwn\w*|getPrototypeOf|vm|inspector|v8|Atomics|debugger|with)\b|(?i:stack|assertionerror)"
    r"|\\|\bmodule\b(?!\.exports)|\brequire\b(?!\(['\"]\.{1,2}/)|\bimport\s*[(.'\"]|\bfrom\s*['\"](?!\.{1,2}/)"
    r"|[\w$)\]]\s*\[(?!\s*(?:\d+|'\w*'|\"\w*\")\s*\])|\[[^\]]*\]\s*:|\?\.\[|\b[A-Z]\w*\.\w+\s*=(?!=)"
)
"""As `_PYTHON`; a name that is put together, too, for that of any function leads to all others."""

_NODE = re.compile(
    r"""['"](?:node:)?(?:assert|async_hooks|child_process|cluster|console|diagnostics_channel|fs|http|https|inspector|module"""
    r"""|net|os|perf_hooks|process|readline|repl|stream|test|timers|trace_events|tty|util|v8|vm|worker_threads)[/'"]"""
)


def javascript(path: str, before: str, after: str) -> bool:
    """See Runner.is_blind."""
    if _WORDS.fullmatch(path):
        return True
    if not path.endswith((".js", ".cjs", ".mjs")):
        return False
    watching = {word for line in after.splitlines() if _NODE.search(line) for word in re.findall(r"[\w$]+", line)}
    watching -= {"const", "let", "var", "import", "from", "require", "as", "default"}
    lines = new_lines(before, after)
    words = {word for line in lines for word in re.findall(r"[\w$]+", line)}
    return words.isdisjoint(watching) and not _found(_JAVASCRIPT, lines)


def python(path: str, before: str, after: str, own: frozenset[str]) -> bool:
    """See Runner.is_blind."""
    if _WORDS.fullmatch(path):
        return True
    if not path.endswith((".py", ".pyi")):
        return False
    try:
        was, tree = _imports(ast.parse(before)), ast.parse(after)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    now = _imports(tree)
    tops = {name: re.split(r"[. ]", module)[0] for name, module in now.items()}
    news = {name for name, module in now.items() if was.get(name) != module}
    if any(tops[name] not in {"", *_PLAIN, *own} or _PYTHON.search(now[name].replace(" ", ".")) for name in news):
        return False
    if any(
        isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load) and _root(one) in now
        for one in ast.walk(tree)
    ):
        return False  # it puts something of its own into what others use
    watching = {name for name, top in tops.items() if top in sys.stdlib_module_names - _PLAIN}
    lines = [unicodedata.normalize("NFKC", line) for line in new_lines(before, after)]
    words = {word for line in lines for word in re.findall(r"\w+", line)}
    return words.isdisjoint(watching) and not _found(_PYTHON, lines)


def _found(pattern: re.Pattern[str], lines: Sequence[str]) -> bool:
    """Also for a line that is longer than people write them, and takes long to look through."""
    return any(len(line) > _LINE_CHARS or pattern.search(line) is not None for line in lines)


def new_lines(before: str, after: str) -> Sequence[str]:
    return list((Counter(after.splitlines()) - Counter(before.splitlines())).elements())


def _imports(tree: ast.Module) -> dict[str, str]:
    """Each name that an import gives, and what it is imported from; `*` is a name, too."""
    found = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.asname or one.name.partition(".")[0]: one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found |= {one.asname or one.name: f"{module} {one.name}" for one in node.names}
    return found


def _root(node: ast.AST) -> str:
    """`a` of `a.b[0].c`; empty for what does not begin with a name."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""

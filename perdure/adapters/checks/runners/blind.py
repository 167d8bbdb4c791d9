"""Blind changes of product files: their new lines use the product's own values alone, so they cannot tell which test
run they are in.

This decides nothing about a change. Where one is not known to be blind, the base's tests get a run of their own.
"""

from __future__ import annotations

import ast
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence

_LINE_CHARS = 1_000

_NO_CODE = re.compile(r".*\.(md|rst|txt|css|svg|po|csv)|(?:.*/)?(LICENSE|CHANGELOG|README)[^/]*")
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


def is_blind_go_change(path: str, before: str, after: str) -> bool:
    """Return whether a change of a file in Go is blind: its new lines use no package, name or word that leads to tests,
    files or the runtime.

    Also True for files that no language runs (documentation, style sheets); False for files of other languages.
    """
    if _NO_CODE.fullmatch(path):
        return True
    if not path.endswith(".go"):
        return False
    old_imports, new_imports = (
        {alias or name.rpartition("/")[2]: name for alias, name in _GO_IMPORT.findall(text)} for text in (before, after)
    )
    if any(old_imports.get(alias) != name and name not in _GO_PLAIN for alias, name in new_imports.items()):
        return False
    watching_names = {
        alias for alias, name in new_imports.items() if name not in _GO_PLAIN and "." not in name.partition("/")[0]
    }
    lines = new_lines(before, after)
    used_names = {word for line in lines for word in re.findall(r"\w+", line)}
    return used_names.isdisjoint(watching_names) and not _has_match(_GO, lines)


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


def is_blind_javascript_change(path: str, before: str, after: str) -> bool:
    """Return whether a change of a JavaScript file is blind: its new lines use no module, name or word that leads to
    tests, files or the runtime.

    Also True for files that no language runs (documentation, style sheets); False for files of other languages.
    """
    if _NO_CODE.fullmatch(path):
        return True
    if not path.endswith((".js", ".cjs", ".mjs")):
        return False
    watching_names = {word for line in after.splitlines() if _NODE.search(line) for word in re.findall(r"[\w$]+", line)}
    watching_names -= {"const", "let", "var", "import", "from", "require", "as", "default"}
    lines = new_lines(before, after)
    used_names = {word for line in lines for word in re.findall(r"[\w$]+", line)}
    return used_names.isdisjoint(watching_names) and not _has_match(_JAVASCRIPT, lines)


def is_blind_python_change(path: str, before: str, after: str, own: frozenset[str]) -> bool:
    """Return whether a change of a Python file is blind: its new lines use no module, name or word that leads to tests,
    files, threads or the interpreter.

    own  the product's own top-level names, which it may import

    Also True for files that no language runs (documentation, style sheets); False for files of other languages, for one
    that cannot be parsed, and for one that sets an attribute of something imported.
    """
    if _NO_CODE.fullmatch(path):
        return True
    if not path.endswith((".py", ".pyi")):
        return False
    try:
        old_imports, tree = _imported_modules(ast.parse(before)), ast.parse(after)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    new_imports = _imported_modules(tree)
    top_modules = {name: re.split(r"[. ]", module)[0] for name, module in new_imports.items()}
    changed_names = {name for name, module in new_imports.items() if old_imports.get(name) != module}
    if any(
        top_modules[name] not in {"", *_PLAIN, *own} or _PYTHON.search(new_imports[name].replace(" ", "."))
        for name in changed_names
    ):
        return False
    if any(
        isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and _root_name(node) in new_imports
        for node in ast.walk(tree)
    ):
        return False  # it puts something of its own into what others use
    watching_names = {name for name, top in top_modules.items() if top in sys.stdlib_module_names - _PLAIN}
    lines = [unicodedata.normalize("NFKC", line) for line in new_lines(before, after)]
    used_names = {word for line in lines for word in re.findall(r"\w+", line)}
    return used_names.isdisjoint(watching_names) and not _has_match(_PYTHON, lines)


def _has_match(pattern: re.Pattern[str], lines: Sequence[str]) -> bool:
    """Return whether the pattern is in one of the lines, or a line is longer than people write them, and takes long to
    search."""
    return any(len(line) > _LINE_CHARS or pattern.search(line) is not None for line in lines)


def new_lines(before: str, after: str) -> Sequence[str]:
    """Return the lines of `after` that `before` has not, or has less often."""
    return list((Counter(after.splitlines()) - Counter(before.splitlines())).elements())


def _imported_modules(tree: ast.Module) -> dict[str, str]:
    """Return each name that an import in the module binds, with what it is imported from (`module` or `module name`);
    `*` is a name, too."""
    modules = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            modules |= {alias.asname or alias.name: f"{module} {alias.name}" for alias in node.names}
    return modules


def _root_name(node: ast.AST) -> str:
    """Return the name that an expression begins with: `a` of `a.b[0].c`; empty for what does not begin with a name."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""

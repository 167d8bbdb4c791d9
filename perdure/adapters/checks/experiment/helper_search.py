"""Find helpers of tests that stand among the product: code that the base's tests reach, by imports or links, and its
product does not. And find modules of a change that are loaded in the place of installed ones. `commit_pair` counts both
to the test side.

A leaf of the product is reached by tests alone, too. So a helper has to look like one, by its name or its text, and to
be used beside the product; what has tests of its own, or is named by settings or the product, is none. Nothing is
executed, and no more is read than `CommitTree.read_texts` does.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

from perdure.adapters.checks.experiment.side_rules import SideRules, parent_directories, quoted_words
from perdure.adapters.checks.tamper.missing_tests import CODE
from perdure.adapters.checks.trees import CommitTree

_PYTHON = (".py", ".pyi", ".pyx")
_JAVASCRIPT = (".js", ".ts", ".mjs", ".cjs", ".mts", ".cts", ".jsx", ".tsx", ".vue")
_INCLUDING = (".rs", ".c", ".h", ".cc", ".cpp", ".hpp", ".rb", ".sh", ".bash", ".bats", ".lua", ".pm", ".pl", ".t")
_CLASSES = (".java", ".kt", ".kts", ".scala", ".groovy", ".cs", ".php", ".swift")
"""Endings of files that find what others of their package declare without naming the file."""
_IMPORTING = (*_PYTHON, *_JAVASCRIPT, ".go", *_INCLUDING, *_CLASSES)
"""Endings of files of which is known which others they use."""

_SETTINGS = ("pyproject.toml", "setup.cfg", "setup.py", "package.json", "Cargo.toml")
_DEPENDENCIES = re.compile(
    r"(?:.*/)?(?:[^/]*requirements[^/]*\.(?:txt|in)|[^/]*\.lock|Pipfile|pyproject\.toml|setup\.(?:cfg|py))"
)

_HELPER_WORDS = frozenset(
    [
    "assert", "asserts", "assertion", "assertions", "cases", "check", "checks", "equal", "equals", "expect",
    "expects", "expected", "expectations", "fake", "fakes", "fixture", "fixtures", "golden", "harness", "helper",
    "helpers", "mock", "mocks", "same", "selftest", "stub", "stubs", "suite", "suites", "support", "test",
    "testing", "testkit", "testlib", "tests", "testutil", "testutils",
    ]
)  # fmt: skip
_TEST_CODE = re.compile(
    r"^\s{0,80}(?:async )?def test|\bTestCase\b|\bAssertionError\b|^\s{0,80}(?:from|import) (?:pytest|unittest)\b"
    r"|['\"](?:node:)?(?:assert|test)(?:/strict)?['\"]|['\"](?:vitest|chai|@jest/globals|testing)['\"]|\bexpect\("
    r"|^(?:import|using|use) (?:static )?"
    r"(?:org\.(?:junit|testng|assertj|hamcrest)|kotlin\.test|Xunit|NUnit|PHPUnit|XCTest)\b",
    re.MULTILINE,
)
_TESTS_INSIDE = re.compile(
    r"^\s{0,80}(?:async )?def test|\(\w{0,40}\.?TestCase\)|^\s{0,80}(?:test|it|describe)\(['\"]", re.MULTILINE
)
_ASSERTING, _DEFINING = (re.compile(rf"^[ \t]{{0,80}}{word}\b", re.MULTILINE) for word in ("assert", "(?:async )?def"))

_PYTHON_IMPORT = re.compile(
    r"^[ \t]{0,80}(?:from[ \t]{1,9}([\w.]{1,200})[ \t]{1,9}import[ \t]{0,9}(\([^)]{0,4000}\)|[^\n#;]{0,1000})"
    r"|import[ \t]{1,9}([^\n#;]{1,1000}))"
    r"|(?:import_module|__import__|importorskip)\([ \t]{0,9}['\"]([\w.]{1,200})['\"]",
    re.MULTILINE,
)
_JAVASCRIPT_IMPORT = re.compile(
    r"(?:\b(?:require|import|mock)\s?\(\s{0,9}|\bfrom\s{0,9}|\bimport\s{1,9})['\"`]([^'\"`\n]{1,300})['\"`]"
)
_INCLUDE = re.compile(
    r"#[ \t]{0,9}include[ \t]{0,9}[<\"]([^>\"\n]{1,300})|#\[path\s{0,9}=\s{0,9}\"([^\"\n]{1,300})"
    r"|\b(?:require|require_relative|(?:require|include)_once|include|load|do|dofile|include!)[ \t(]{1,9}"
    r"(?:__DIR__[ .]{1,9})?['\"]([^'\"\n]{1,300})"
    r"|^[ \t]{0,80}(?:pub )?(?:mod|use|require)[ \t]{1,9}([\w:]{1,200})"
    r"|(?:^|[;&|])[ \t]{0,80}(?:source|load|\.)[ \t]{1,9}([^\n;&|]{1,300})",
    re.MULTILINE,
)
_DECLARED = re.compile(
    r"^(?:[ \t]{0,8}(?:[\w@]{1,40} ){0,5}(?:class|interface|object|enum|trait|struct|record|protocol)"
    r"|(?:\w{1,40} ){0,4}(?:fun|func|function))[ \t]{1,9}(?:[\w.<>?]{1,80}\.)?(\w{1,100})",
    re.MULTILINE,
)
"""Types, and functions that stand in none, of the languages of `_CLASSES`."""
_LOADING_BY_NAME = ("import_module", "__import__", "iter_modules", "walk_packages", "readdirSync", "require.context")
_TEST_AFFIX = re.compile(r"^tests?[_.-]?|[_.-]?(?:tests?|spec|specs)$")


def find_test_helpers(base: CommitTree, rules: SideRules, differing: Collection[str]) -> frozenset[str]:
    """Find, among differing files of the base that are product by their places, helpers of its tests (see the module),
    and files that links among its tests lead to.

    All of its code is read where one of them looks like a helper, or there are links among the tests.
    """
    candidates = {path for path in differing if path in base.entries and _is_product(path, rules)}
    texts = base.read_texts(path for path in candidates if path.endswith(_IMPORTING))
    links = {
        path: target
        for path, target in base.read_links().items()
        if path in candidates
        or (rules.is_side(path) and any(f"{other}/".startswith(f"{target}/") for other in candidates))
    }
    if not links and not any(_looks_like_helper(path, text) for path, text in texts.items()):
        return frozenset()
    return frozenset(candidates & _HelperSearch(base, rules, links).find_helpers())


def _is_product(path: str, rules: SideRules) -> bool:
    """Return whether a file is product by its place, and people say nothing about it."""
    return not rules.is_side(path) and not rules.is_shared(path) and rules.configured_side(path) is None


def _looks_like_helper(path: str, text: str) -> bool:
    """Return whether a file may be a helper of tests: a word of its path says so, its text asserts or defines tests, or
    it is of a package of Go that nobody else can import."""
    path_parts = set(re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", posixpath.splitext(path)[0]).lower()))
    if path_parts & _HELPER_WORDS or (path.endswith(".go") and "internal" in path_parts):
        return True
    if not path.endswith((*_PYTHON, *_JAVASCRIPT, ".go", *_CLASSES)):
        return False
    asserting = len(_ASSERTING.findall(text)) if path.endswith(_PYTHON) else 0
    return _TEST_CODE.search(text) is not None or (asserting > 0 and 2 * asserting >= len(_DEFINING.findall(text)))


class _HelperSearch:
    """The files of a commit, and which of them use which.

    links  the links among the tests, path → target
    """

    def __init__(self, tree: CommitTree, rules: SideRules, links: Mapping[str, str]) -> None:
        self._rules, self._paths = rules, frozenset(tree.entries)
        code = [path for path in tree.entries if path.endswith((*_IMPORTING, "go.mod", *_SETTINGS))]
        self._texts = tree.read_texts(code)
        self._by_name = dict[str, list[str]]()
        for path in sorted(self._paths):
            if path.endswith(_IMPORTING):
                self._by_name.setdefault(_module_name(path), []).append(path)
        directories = {posixpath.dirname(path) for path in self._paths}
        self._parts = self._by_name.keys() | {part for directory in directories for part in directory.split("/")}
        self._resolved = dict[tuple[str, str], list[str]]()
        self._links = {path: self._linked_paths(target) for path, target in links.items()}
        self._texts |= {link: self._texts[paths[0]] for link, paths in self._links.items() if paths[0] in self._texts}
        self._uses = {path: set(self._used_paths(path, text)) - {path} for path, text in self._texts.items()}
        self._uses |= {link: {*paths} for link, paths in self._links.items()}
        self._users = dict[str, set[str]]()
        for user, paths in self._uses.items():
            for path in paths:
                self._users.setdefault(path, set()).add(user)

    def find_helpers(self) -> set[str]:
        """Return the files that are helpers of tests, or data that links among tests lead to."""
        names = self._published_names()
        helpers = {path for path in self._users if _is_product(path, self._rules) and self._may_be_helper(path, names)}
        while True:
            kept = {p for p in helpers if all(self._rules.is_side(u) or u in helpers for u in self._users[p])}
            kept = {path for path in kept if self._stands_beside_product(path, kept)}
            if kept == helpers:
                break
            helpers = kept
        reached, pending = set[str](), [path for path in self._uses if self._rules.is_side(path)]
        while pending:
            new = (self._uses.get(pending.pop(), set()) & helpers) - reached
            reached |= new
            pending += new
        return reached

    def _may_be_helper(self, path: str, published: Collection[str]) -> bool:
        """Return whether nothing of a file's own speaks against it: it looks like a helper, has no tests of its own,
        and neither settings nor the product name it."""
        dotted = posixpath.splitext(path)[0].replace("/", ".")
        names = {path, posixpath.splitext(path)[0], path.rpartition("/")[2], dotted, dotted.removeprefix("src.")}
        if not names.isdisjoint(published):
            return False
        linked_from = [user for user in self._users[path] if user in self._links]
        if any(self._rules.holds_tests(link) for link in linked_from) or (linked_from and not CODE.fullmatch(path)):
            return True
        text = self._texts.get(path, "")
        if not _looks_like_helper(path, text):
            return False
        if path.endswith(".go"):
            above = path.rpartition("/")[0]
            return not any(p.endswith("_test.go") and p.rpartition("/")[0] == above for p in self._paths)
        return _TESTS_INSIDE.search(text) is not None or _module_name(path).lower() not in self._tested_names

    def _stands_beside_product(self, path: str, helpers: Collection[str]) -> bool:
        """Return whether a helper uses the product, or whoever uses the helper does; True where its text says that it
        holds tests, and where it is not known."""
        if not path.endswith((*_PYTHON, *_JAVASCRIPT, *_CLASSES)) or _TESTS_INSIDE.search(self._texts.get(path, "")):
            return True
        near = [path, *self._users[path]]
        used = {inner for file in near for inner in self._uses.get(file, ())} - {*helpers, path}
        package = posixpath.dirname(path) + "/__init__.py"
        return any(_is_product(other, self._rules) for other in used - {package}) or any(u in self._links for u in near)

    @cached_property
    def _tested_names(self) -> set[str]:
        """Return the names of modules that have a test file of their own: `calc` of `test_calc.py`, `calc.spec.js`."""
        rules, names = self._rules, {path: _module_name(path).lower() for path in self._texts}
        return {
            _TEST_AFFIX.sub("", name)
            for path, name in names.items()
            if rules.holds_tests(path) or (rules.is_side(path) and _TEST_AFFIX.search(name))
        }

    def _published_names(self) -> frozenset[str]:
        """Return names of modules and files that settings or the product have in quotes: entry points, plug-ins. Of
        modules at the top those in settings alone."""
        settings = [text for path, text in self._texts.items() if path.endswith(_SETTINGS)]
        product = [text for path, text in self._texts.items() if _is_product(path, self._rules)]
        in_settings = {
            word.partition(":")[0]
            for text in settings
            for word in re.findall(r"[\"'=]\s?(?:\./)?([\w./:-]{1,200})", text)
        }
        return frozenset(in_settings | quoted_words(settings) | {word for word in quoted_words(product) if "." in word})

    def _linked_paths(self, target: str) -> list[str]:
        """Return the files that a link's target stands for: one, or those of a directory."""
        return [path for path in sorted(self._paths) if f"{path}/".startswith(f"{target}/")] or [""]

    def _used_paths(self, path: str, text: str) -> Iterator[str]:
        """Yield the files that a file uses, by its imports and includes; all that stand below it where it loads modules
        whose names it computes."""
        if any(word in text for word in _LOADING_BY_NAME) and _is_product(path, self._rules):
            above = posixpath.dirname(path)
            yield from (other for other in self._paths if not above or other.startswith(f"{above}/"))
        if path.endswith(_PYTHON):
            above = posixpath.dirname(path)
            for module in imported_modules(path, text):
                if not self._parts.isdisjoint((module.partition(".")[0], module.rpartition(".")[2])):
                    yield from self._resolve_name(above, module.replace(".", "/"), _PYTHON)
        elif path.endswith(_JAVASCRIPT):
            for word in _JAVASCRIPT_IMPORT.findall(text):
                inner = (
                    posixpath.join(posixpath.dirname(path), word)
                    if word.startswith(".")
                    else re.sub("^[@~#]/", "", word)
                )
                yield from self._resolve_name(posixpath.dirname(path), inner, _JAVASCRIPT, exact=True)
        elif path.endswith(".go"):
            yield from self._go_files(path, text)
        else:
            for groups in _INCLUDE.findall(text):
                word = re.sub(r"^.*[)}]/|^\W*\$\w+/", "", "".join(groups)).replace("::", "/").strip("/\"' ")
                yield from self._resolve_name(posixpath.dirname(path), word, (*_INCLUDING, ".php"))
            if path.endswith(_CLASSES):
                for word in set(re.findall(r"\b[^\W\d]\w*", text)) & self._files_by_declared_name.keys():
                    yield from self._files_by_declared_name[word]

    def _resolve_name(self, above: str, name: str, endings: tuple[str, ...], exact: bool = False) -> list[str]:
        """Return the files that a name without an ending, or with one, stands for: those below the directory `above` of
        its user, the top or `src`; else, unless `exact`, every file whose path ends that way. Answers are kept."""
        if (above, name) not in self._resolved:
            self._resolved[above, name] = self._find_files(above, name, endings, exact)
        return self._resolved[above, name]

    def _find_files(self, above: str, name: str, endings: tuple[str, ...], exact: bool) -> list[str]:
        """Find the files that `_resolve_name` returns."""
        for root in (above, "", "src", "lib"):
            stem = posixpath.normpath(posixpath.join(root, name))
            forms = [
                stem,
                *(f"{stem}{end}" for end in endings),
                *(f"{stem}/{i}{end}" for i in _INDEXES for end in endings),
            ]
            forms += [posixpath.splitext(stem)[0] + end for end in endings if exact and stem.endswith(".js")]
            if existing := [path for path in forms if path in self._paths]:
                return existing
        if exact or not name:
            return []
        stem = posixpath.splitext(name)[0] if name.endswith(endings) else name
        same_name = self._by_name.get(posixpath.basename(stem), [])
        return [
            p
            for p in same_name
            if p.endswith(endings) and re.sub(_INDEX, "", posixpath.splitext(p)[0]).endswith(f"/{stem}")
        ]

    def _go_files(self, path: str, text: str) -> Iterator[str]:
        """Yield the files of the packages that a Go file imports, and for a test file those of its own."""
        directories = {posixpath.dirname(path)} if path.endswith("_test.go") else set[str]()
        for manifest in (file for file in self._texts if posixpath.basename(file) == "go.mod"):
            module = re.search(r"^module\s{1,9}\"?([^\s\"]{1,300})", self._texts[manifest], re.MULTILINE)
            for inner in re.findall(rf'"{re.escape(module[1])}/?([^"\n]{{0,300}})"', text) if module else ():
                directories.add(posixpath.join(posixpath.dirname(manifest), inner).rstrip("/"))
        for directory in directories:
            yield from self._go_packages.get(directory, ())

    @cached_property
    def _files_by_declared_name(self) -> dict[str, list[str]]:
        """Return the names of types and functions → the files of `_CLASSES` that declare them."""
        declaring = dict[str, list[str]]()
        for path in sorted(self._texts):
            for name in set(_DECLARED.findall(self._texts[path])) if path.endswith(_CLASSES) else ():
                declaring.setdefault(name, []).append(path)
        return declaring

    @cached_property
    def _go_packages(self) -> dict[str, list[str]]:
        """Return directory → Go files that are no tests."""
        packages = dict[str, list[str]]()
        for path in self._paths:
            if path.endswith(".go") and not path.endswith("_test.go"):
                packages.setdefault(posixpath.dirname(path), []).append(path)
        return packages


_INDEXES = ("__init__", "index", "mod", "lib", "src/lib")
_INDEX = re.compile(r"/(?:__init__|index|mod|src/lib)$")


def _module_name(path: str) -> str:
    """Return the name by which a file is imported, without its ending: of `__init__.py`, `index.js` and the like the
    directory's."""
    return posixpath.basename(_INDEX.sub("", posixpath.splitext(path)[0]))


def imported_modules(path: str, text: str) -> set[str]:
    """Return the dotted names of modules that a Python file may import, with their packages; relative ones from the top
    of the tree."""
    modules, above = set[str](), posixpath.dirname(path).split("/")
    for source, names, plain, computed in _PYTHON_IMPORT.findall(text):
        names_of_modules = [
            word.split()[0] for word in re.sub(r"[()#]", " ", names or plain).split(",") if word.strip()
        ]
        if source:
            inner = source.lstrip(".")
            package = above[: len(above) - (len(source) - len(inner) - 1)] if inner != source else []
            prefix = ".".join([*package, *([inner] if inner else [])]).strip(".")
            names_of_modules = [prefix, *(f"{prefix}.{word}".strip(".") for word in names_of_modules)]
        for word in [*names_of_modules, *([computed] if computed else [])]:
            parts = word.split(".")
            modules |= {".".join(parts[: number + 1]) for number in range(len(parts))}
    return modules - {""}


_RUNNER_MODULES = frozenset(
    [
    "pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "exceptiongroup", "tomli", "pygments",
    "colorama", "unittest", "nose", "nose2", "coverage", "xdist", "execnet", "mock", "hypothesis", "attr", "attrs",
    "sortedcontainers", "doctest", "pytest_cov", "pytest_asyncio", "anyio", "sniffio",
    ]
)  # fmt: skip
"""Modules that Python's runners, their usual plug-ins, and what these need, load."""


def find_shadowing_modules(
    base: CommitTree, change: CommitTree, rules: SideRules, differing: Collection[str]
) -> frozenset[str]:
    """Find files that the change adds and that are loaded in the place of what is installed: modules of Python where
    imports look first, packages in `node_modules`, and an `__init__.py` at the top, which pytest loads before tests.

    Such a module has the name of one that runners load, or that the base imports and does not have; or nobody in the
    change imports it, and its name is Python's own or among the dependencies.
    """
    new_paths = (path for path in differing if path in change.entries and path not in base.entries)
    added = {path for path in new_paths if not rules.is_side(path)}
    shadowing_files = added & {"__init__.py"}
    roots = {
        "",
        "src",
        "lib",
        *(posixpath.dirname(path) for path in base.entries if path.endswith(".py") and rules.holds_tests(path)),
    }
    modules = dict[str, set[str]]()
    for path in added:
        for root in {"", *parent_directories(path)} & roots:
            name, _, inner = path.removeprefix(f"{root}/" if root else "").partition("/")
            module = name if inner else posixpath.splitext(name)[0]
            stem = posixpath.join(root, module)
            is_loaded = f"{stem}/__init__.py" in added if inner else path.endswith((".py", ".pyc", ".so"))
            if is_loaded and f"{stem}.py" not in base.entries and f"{stem}/__init__.py" not in base.entries:
                modules.setdefault(module, set()).add(path)
        package = re.match(r"((?:.*/)?node_modules/((?:@[^/]+/)?[^/]+)/)", path)
        if package is not None and not any(other.startswith(package[1]) for other in base.entries):
            modules.setdefault(package[2], set()).add(path)
    shadowing_files |= {path for module in modules.keys() & _RUNNER_MODULES for path in modules[module]}
    modules = {module: paths for module, paths in modules.items() if module not in _RUNNER_MODULES}
    if modules:
        own = {_module_name(path) for path in base.entries if path.endswith(_PYTHON)}
        shadowing = (_imported_names(base) - own) & modules.keys()
        texts = base.read_texts(path for path in base.entries if _DEPENDENCIES.fullmatch(path)).values()
        installed = {word.replace("-", "_").lower() for text in texts for word in re.findall(r"[\w-]+", text)}
        unused = modules.keys() - _imported_names(change)
        shadowing |= {name for name in unused if name in sys.stdlib_module_names or name.lower() in installed}
        shadowing_files |= {path for module in shadowing for path in modules[module]}
    return frozenset(shadowing_files)


def _imported_names(tree: CommitTree) -> set[str]:
    """Return the first names of all that Python and JavaScript files of a commit import, by absolute names."""
    names = set[str]()
    for path, text in tree.read_texts(path for path in tree.entries if path.endswith((*_PYTHON, *_JAVASCRIPT))).items():
        if path.endswith(_PYTHON):
            names |= {
                module.partition(".")[0]
                for module in imported_modules("", re.sub(r"(?m)^\s*from\s+\.", "from _.", text))
            }
        else:
            sources = (word for word in _JAVASCRIPT_IMPORT.findall(text) if not word.startswith("."))
            names |= {"/".join(word.split("/")[: 1 + word.startswith("@")]) for word in sources}
    return names

"""Take the bodies out of functions that a change adds, for `commit_pair`: a new test whose file does not even load
without the change says nothing by that. On the change with its new functions stubbed it has to fail. Python, Go, Rust,
Java, JavaScript and TypeScript are read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perdure.adapters.checks.experiment.reduced_tests import remove_unused_go_imports
from perdure.adapters.checks.runners.python import parse_python
from perdure.adapters.checks.tamper.source_tests import BlankedSource, blank_source

STUB_MESSAGE = "stubbed function"
"""The message of the error that a stubbed function raises."""

_HEADS = {
    "go": re.compile(r"(?m)^func (?:\([^)\n]{0,80}\) )?\w{1,200}"),
    "rs": re.compile(r"\bfn \w{1,200}"),
    "js": re.compile(
        r"\bfunction\*? \w{1,200}"
        r"|[\w.]{1,200} = (?:async )?"
        r"(?:function\*? ?(?=\()|(?:\([^()]{0,1000}\)|\w{1,200})(?::[^={;()]{1,200})? =>(?= ?\{))"
        r"|(?m:^)[ \t]+(?:(?:static|async|get|set|public|private|protected|override) |\*)*"
        r"#?(?!(?:if|for|while|switch|catch|with|function|constructor)\b)\w{1,200}"
        r"(?=\([^()]{0,1000}\)(?: ?:[^{;=()]{1,200})? ?\{)"
    ),
    "java": re.compile(
        r"(?m)^[ \t]+(?:(?:public|protected|private|static|final|synchronized) )+[\w<>\[\], .?]{1,200} \w{1,200}"
        r"(?=\([^()]{0,1000}\)[\w., ]{0,200}\{)"
    ),
}
_ARROW = re.compile(
    r"(?m)([\w.]{1,200} = (?:async )?(?:\([^()]{0,1000}\)|\w{1,200})(?::[^={;()\n]{1,200})? => ?)"
    r"(?![{\s])([^\n;]{1,1000});$"
)
"""A function of JavaScript whose body is an expression, on one line that ends in a semicolon."""
_BODIES = {
    "go": f'{{ panic("{STUB_MESSAGE}") }}',
    "rs": f'{{ panic!("{STUB_MESSAGE}") }}',
    "js": f"{{ throw new Error('{STUB_MESSAGE}'); }}",
    "java": f'{{ throw new UnsupportedOperationException("{STUB_MESSAGE}"); }}',
}
_LANGUAGES = {"mjs": "js", "cjs": "js", "jsx": "js", "ts": "js", "tsx": "js", "mts": "js", "cts": "js"}
_BRACKETED = re.compile(r"\[[^\]]{0,1000}\]|\([^)]{0,1000}\)")
_GO_TEST = re.compile(r"(?m)(?:^func Test(?![a-z])\w*|\bfunc)\((?!_ )(\w+) \*testing\.T\) \{")
_RUST_TEST = re.compile(r"#\[(?:cfg\(test\)|(?:\w{1,40}::)?test\b[^\]\n]{0,80})\][^;{}]{0,500}\{")
_BODY_START = re.compile(r"(?<!struct)(?<!struct )(?<!interface)(?<!interface )\{(?!\})")


def stub_new_functions(path: str, before: str, after: str) -> str:
    """Return a product file of the change in which each function that the base's version has not raises, or panics, as
    soon as it is called; as it is where there is none, the language is not read, or the text cannot be parsed.

    before  the base's text; empty for a new file
    """
    ending = path.rpartition(".")[2]
    language = _LANGUAGES.get(ending, ending)
    if language == "py":
        return _stub_python(before, after)
    return _stub_braces(language, before, after) if language in _HEADS else after


def recover_go_panics(text: str) -> str:
    """Return a Go test file in which a panic makes its own test, or subtest, fail; it would end the tests behind it as
    well."""
    return _GO_TEST.sub(
        lambda match: f'{match[0]} defer func() {{ if r := recover(); r != nil {{ {match[1]}.Errorf("%v", r) }} }}();',
        text,
    )


def _stub_python(before: str, after: str) -> str:
    tree = parse_python(after)
    if tree is None:
        return after
    old_tree = parse_python(before)
    old_names = {name for name, _ in _python_functions(old_tree)} if old_tree is not None else set[str]()
    new_functions = [node for name, node in _python_functions(tree) if name not in old_names]
    for node in new_functions:
        node.body = ast.parse(f"raise NotImplementedError({STUB_MESSAGE!r})").body
    try:
        return ast.unparse(tree) if new_functions else after
    except RecursionError:  # a sum of a thousand parts
        return after


def _python_functions(
    tree: ast.Module | ast.ClassDef, prefix: str = ""
) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return (name, node) of each function of a module and each method of its classes, the classes before its name."""
    functions = list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((f"{prefix}{node.name}", node))
        elif isinstance(node, ast.ClassDef):
            functions += _python_functions(node, f"{prefix}{node.name}.")
    return functions


def new_functions_of_rust(before: str, after: str) -> set[str]:
    """Return the names of the functions that are new in a Rust file, those of tests left out; `before`: the base's."""
    source = blank_source(after, "rs")
    return {match[0].removeprefix("fn ") for match, _ in _new_functions("rs", before, source)}


def _new_functions(language: str, before: str, source: BlankedSource) -> Iterator[tuple[re.Match[str], int]]:
    """Yield the beginning of each new function and the place of its block; a function is new where the base's text has
    none with the same beginning. Rust's tests, and what stands beside them in their module, are left out."""
    old_heads, position = set(_HEADS[language].findall(blank_source(before, language).bare)), 0
    tests, tests_end = [match.end() - 1 for match in _RUST_TEST.finditer(source.bare) if language == "rs"], 0
    for match in _HEADS[language].finditer(source.bare):
        opening = _BODY_START.search(source.bare, match.end())
        if match[0] in old_heads or opening is None or match.start() < position:
            continue
        if ";" in _BRACKETED.sub("", source.bare[match.end() : opening.start()]):
            continue  # a declaration without a body
        while tests and tests[0] <= opening.start():
            tests_end = max(tests_end, source.block_end(tests.pop(0)))
        if opening.start() < tests_end:
            continue
        position = source.block_end(opening.start())
        yield match, opening.start()


def _stub_braces(language: str, before: str, after: str) -> str:
    """Empty the new functions of a language whose blocks stand in braces."""
    source, parts, position = blank_source(after, language), list[str](), 0
    for _, opening in _new_functions(language, before, source):
        parts += [after[position:opening], _BODIES[language]]
        position = source.block_end(opening)
    stubbed = "".join([*parts, after[position:]])
    if language == "js":
        bare = blank_source(stubbed, language).bare
        for match in reversed(list(_ARROW.finditer(bare))):
            if match[1] not in before:
                stubbed = f"{stubbed[: match.end(1)]}{_BODIES[language]}{stubbed[match.end(2) :]}"
    return remove_unused_go_imports(stubbed) if language == "go" and parts else stubbed

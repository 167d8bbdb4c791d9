"""Names and docstrings as a stranger meets them: unique, plain, and saying something."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("perdure", "workflows", "activities", "schemas")
FIELD_TERMS = Path(__file__).with_name("field_terms.txt")
"""Words of module names that are the field's own; those of this project are in the tables of CONTRIBUTING.md."""

SHARED_CLASSES = {"Backlog", "Delivery"}
"""A workflow and the client's handle of it, both named as the workflow type is."""

EMPTY_WORDS = "found one said told words asked given left there again take of run read"
"""Words that say nothing as a whole name."""

NOT_ACTS = {"the", "a", "an", "one", "all", "each", "every", "its", "it", "they", "those", "this", "none", "true", "as"}
"""First words of docstrings that begin with no verb."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted([*ROOT.glob("*.py"), *(path for top in PRODUCT for path in (ROOT / top).rglob("*.py"))]):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def functions(body: list[ast.stmt]) -> Iterator[Function]:
    """Yield the functions of a module and the methods of its classes; none inside another function, no dunders."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body)
        elif isinstance(node, Function) and not node.name.startswith("__"):
            yield node


def statement_lines(function: Function) -> int:
    """Return how many lines the body has below the docstring."""
    below = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - below[0].lineno + 1 if below else 0


def bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def test_no_two_classes_share_a_name() -> None:
    names = Counter(node.name for _, tree in sources() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == SHARED_CLASSES


def test_every_word_of_a_module_s_name_is_in_the_glossary_or_a_term_of_the_field() -> None:
    known = set(re.findall(r"[a-z]+", (ROOT / "CONTRIBUTING.md").read_text().lower()))
    known |= set(FIELD_TERMS.read_text().split())
    unknown = {
        f"{path}: {word}"
        for path, _ in sources()
        for word in re.findall(r"[a-z]+", Path(path).stem)
        if not {word, f"{word}s", word.removesuffix("s")} & known
    }
    assert not unknown, f"{sorted(unknown)}: in a glossary, or in {FIELD_TERMS.name} where the field says so"


def test_names_that_say_nothing_are_few() -> None:
    counts = Counter(name.strip("_") for _, tree in sources() for name in bound_names(tree))
    assert {word: counts[word] for word in EMPTY_WORDS.split() if counts[word] > 3 and word != "run"} == {}
    assert counts["run"] <= 9, "the method under @workflow.run"


def test_functions_are_told_by_their_names_and_docstrings() -> None:
    seen = [node for _, tree in sources() for node in functions(tree.body) if statement_lines(node) >= 4]
    documented = [doc for node in seen if (doc := ast.get_docstring(node))]
    one_word = [node.name for node in seen if "_" not in node.name.strip("_")]
    participles = [node.name for node in seen if re.fullmatch(r"_*[a-z]+(ed|en|wn|ld|nt|pt|de|ght)", node.name)]
    without_verb = [doc for doc in documented if re.split(r"\W", doc, maxsplit=1)[0].lower() in NOT_ACTS]
    silent = [node.name for node in seen if statement_lines(node) >= 8 and not ast.get_docstring(node)]
    assert len(seen) > 2000
    assert len(one_word) <= 0.15 * len(seen)
    assert len(participles) <= 0.02 * len(seen), participles
    assert len(without_verb) <= 0.05 * len(documented), without_verb[:20]
    assert len(silent) <= 10, silent


PRODUCT_OF_DOCSTRINGS = ("perdure", "workflows", "activities")
QUESTIONS = {"What", "Whether", "Which", "How", "Who", "Whom", "Whose", "When", "Where", "Why"}


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Every string that stands alone, with its line: of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def asks(text: str) -> bool:
    first = re.match(r"\w*", text.lstrip())
    return first is not None and first[0] in QUESTIONS


def test_no_docstring_begins_with_a_question_word() -> None:
    sources = [*ROOT.glob("*.py"), *(path for top in PRODUCT_OF_DOCSTRINGS for path in (ROOT / top).rglob("*.py"))]
    assert len(sources) > 300
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:60]}"
        for path in sources
        for line, text in docstrings(path.read_text())
        if asks(text)
    ]
    assert not found, "\n".join(found)


def test_a_question_would_be_seen_wherever_it_stands() -> None:
    source = '"""What m is."""\nA = 1\n"""Why."""\nclass C:\n    """How c."""\n    def f(self):\n        """Whose."""'
    assert sum(asks(text) for _, text in docstrings(source)) == 4
    assert not any(map(asks, ("Whatever it is.", "Return what it is.", "")))

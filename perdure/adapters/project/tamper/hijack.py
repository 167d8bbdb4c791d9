"""Files that get in front of what tests load, by what they are called, and files that forge reports."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable

from perdure.adapters.project.tamper.files import Files
from perdure.adapters.project.tamper.inventory import hit
from perdure.adapters.project.tamper.pymodule import parsed
from perdure.adapters.project.tamper.pytests import is_test_file, supports_tests
from perdure.models.policy import TAMPER_WORD_FILES
from perdure.models.report import Hit, Tampering

_START_UP = {"sitecustomize", "usercustomize"}
_RUNNERS = {"pytest", "_pytest", "unittest", "pluggy", "coverage", "nose", "hypothesis", "mock"}
_INSTALLED = {"node_modules", ".venv", "venv", "site-packages", ".pytest_cache", ".tox", ".nox"}
_REPORTS = re.compile(
    r"(?:^|/)(?:(?:surefire|failsafe)-reports/.*|build/test-results/.*|TEST-[^/]*\.xml)$"
    r"|^(?:test-)?(?:results|reports)/[^/]*\.xml$|^(?:junit|report|results|test-results)[^/]*\.xml$"
)
_TALKS = re.compile(
    r"PERDURE_REPORT|PYTEST_ADDOPTS|PYTEST_CURRENT_TEST|PYTEST_PLUGINS|PYTEST_DISABLE_PLUGIN\w*|JEST_JUNIT_\w+"
    r"|NODE_TEST_CONTEXT|junit_?xml\b|junit-xml|\bxmlpath\b|<testsuites?\b|<testcase\b"
    r"|surefire-reports|failsafe-reports"
)
_CODE = re.compile(
    r".*\.(py|pth|[cm]?[jt]sx?|sh|bash|zsh|go|rs|java|kt|kts|rb|php|pl|cs|mk|env|bats|groovy)|(.*/)?(GNUm|m|M)akefile"
    r"|(.*/)?\.env[.\w]*|(.*/)?\.envrc"
)
_MAKE = re.compile(r"[Mm]akefile$|\.mk$|\.env[.\w]*$|\.envrc$|(nox|fab)file\.py$|(^|/)(tasks|setup|conftest)\.py$")


def hijack_hits(before: Files, after: Files, paths: Iterable[str], commands: str) -> list[Hit]:
    """Hits among files that differ, by what they are called and by words no program needs that leaves reports alone."""
    hits: list[Hit] = []
    for path in paths:
        if after.has(path):
            hits += _named(before, after, path)
            hits += _report(before, after, path, commands)
        elif "unittest" in commands and _package_gone(after, path):
            told = "without it `python -m unittest` does not look into this directory"
            hits.append(hit(Tampering.CONFIGURATION, f"{path} is gone", path, None, told))
    return hits + _shadows(before, after, [path for path in paths if after.has(path) and not before.has(path)])


def _package_gone(after: Files, path: str) -> bool:
    if not path.endswith("/__init__.py") or not supports_tests(path):
        return False
    return any(name.startswith(path.removesuffix("__init__.py")) for name in after.names)


def _named(before: Files, after: Files, path: str) -> list[Hit]:
    name = posixpath.basename(path)
    stem = name.partition(".")[0]
    parts = path.split("/")
    if stem in _START_UP and name.endswith((".py", ".pyc")):
        return [hit(Tampering.CONFIGURATION, f"{path} runs whenever Python starts", path)]
    if name.endswith(".pth"):
        return [hit(Tampering.CONFIGURATION, f"{path} can run code whenever Python starts", path)]
    if name.endswith((".pyc", ".pyo")):
        return [hit(Tampering.CONFIGURATION, f"{path}: compiled Python can run instead of its source", path)]
    if before.has(path):
        return []
    installed = next((part for part in parts[:-1] if part in _INSTALLED), None)
    if installed:
        return [hit(Tampering.CONFIGURATION, f"{path} stands where installed packages and caches do", path)]
    if after.is_link(path) and (supports_tests(path) or name == "conftest.py"):
        return [hit(Tampering.CONFIGURATION, f"{path} is a link to something else", path)]
    return []


def _shadows(before: Files, after: Files, fresh: list[str]) -> list[Hit]:
    """New modules that `import x` finds before what it found until now."""
    candidates: dict[str, str] = {}
    for path in fresh:
        parts = path.split("/")
        package = parts[-1] == "__init__.py"
        if not path.endswith(".py") or (package and len(parts) < 2):
            continue
        above = parts[: -2 if package else -1]
        if above and after.has("/".join([*above, "__init__.py"])) and not all(re.fullmatch("tests?", p) for p in above):
            continue  # within a package: nobody imports it by this name alone
        candidates[parts[-2] if package else parts[-1].removesuffix(".py")] = path
    hits = [
        hit(Tampering.CONFIGURATION, f"{path} stands in for {name} where the tests import it", path)
        for name, path in candidates.items()
        if name in _RUNNERS
    ]
    left = {name: path for name, path in candidates.items() if name not in _RUNNERS and not is_test_file(path)}
    if not left:
        return hits
    tests = sorted(name for name in before.names if is_test_file(name) or name.endswith("conftest.py"))
    before.load(tests)
    own = {part for name in before.names if name.endswith(".py") for part in name.removesuffix(".py").split("/")}
    for name, path in left.items():
        user = next((test for test in tests if name not in own and _imports(test, before.text(test), name)), None)
        if user:
            title = f"{path} stands in for {name}, which {user} imports from elsewhere"
            hits.append(hit(Tampering.CONFIGURATION, title, path))
    return hits


def _imports(path: str, text: str | None, name: str) -> bool:
    if not text or name not in text:
        return False
    module = parsed(path, text)
    found = [part for node in ast.walk(module.tree) for part in _roots(node)] if module else []
    return name in found


def _roots(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return [(node.module or "").partition(".")[0]] if isinstance(node, ast.ImportFrom) and not node.level else []


def _about_runners(before: Files) -> bool:
    """Whether such words are an everyday matter in the code of the base."""
    words = _TALKS.pattern.replace(r"\b", "").replace(r"\w", "[A-Z_]")
    named = [path for path in before.mentioning(words) if _code(path) and not _MAKE.search(path)]
    return len(named) >= TAMPER_WORD_FILES


def _code(path: str) -> bool:
    return _CODE.fullmatch(path) is not None and not path.startswith((".github/", ".gitlab"))


def _report(before: Files, after: Files, path: str, commands: str) -> list[Hit]:
    text = after.text(path) or ""
    named = re.search(rf"(?:^|[\s=./\"']){re.escape(posixpath.basename(path))}(?:$|[\s\"'])", commands)
    if _REPORTS.search(path) or (named and path.endswith(".xml")):
        holds = "<testsuite" in text or re.search(r"(surefire|failsafe)-reports|test-results/", path)
        return (
            [hit(Tampering.REPORT, f"{path} is a report that no run has written", path, None, text[:200])]
            if holds
            else []
        )
    if not _code(path):
        return []
    old, name = before.text(path) or "", posixpath.basename(path)
    for number, line in enumerate(text.splitlines(), start=1):
        found = next((word for word in _TALKS.finditer(line) if text.count(word[0]) > old.count(word[0])), None)
        if found:
            if name != "conftest.py" and _about_runners(before):
                return []
            title = f"{path} meddles with the runner's report or its options ({found[0]})"
            return [hit(Tampering.REPORT, title, path, number, f"+ {line.strip()}")]
    return []

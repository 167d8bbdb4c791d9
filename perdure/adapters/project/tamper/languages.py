"""Which files are tests, and who can read them."""

from __future__ import annotations

import re

from perdure.adapters.project.tamper import jstests, othertests, pytests
from perdure.adapters.project.tamper.files import Files
from perdure.adapters.project.tamper.inventory import Inventory
from perdure.adapters.project.tamper.pysources import Sources

_TEST = re.compile(
    r".*[._-](test|spec|tests|specs)\.[cm]?[jt]sx?|.*_test\.(go|rb|exs|dart|cc|cpp|c|lua|rs|ml|clj|erl)"
    r"|test[_-].*\.(rb|cc|cpp|c|lua|[cm]?[jt]sx?|sh|bash|R|pl|rs|php)|.*[_.-]test\.(sh|bash|bats|php)"
    r"|.*(Test|Tests|IT|Spec|TestCase)\.(java|kt|kts|groovy|scala|cs|php|swift|vb|fs)|.*_spec\.(rb|lua|cr)|.*\.(bats|t)"
)
_SETTINGS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini")
_PLACE = re.compile(r"(^|/)(tests?|specs?|__tests__|testing|e2e)/")


def is_test(path: str) -> bool:
    """Whether a file holds tests, by its name, or for a script by its place."""
    name = path.rpartition("/")[2]
    in_place = re.search(r"(^|/)(__tests__|tests?)/(.*/)?[^/]+\.([cm]?[jt]sx?|sh|bash|rs|t)$", path)
    return pytests.is_test_file(path) or _TEST.fullmatch(name) is not None or in_place is not None


def supports(path: str) -> bool:
    """Whether tests load a file: tests themselves, and what stands beside them."""
    return is_test(path) or pytests.supports_tests(path) or _PLACE.search(path) is not None or path.endswith(".rs")


class Languages:
    """Inventories of one commit's files. `commands`: the words of all test commands."""

    def __init__(self, files: Files, commands: str) -> None:
        self.sources = Sources(files)
        self._files = files
        pytest = re.search(r"\bpy\.?test\b", commands) is not None
        unittest = re.search(r"\bunittest\b|manage\.py", commands) is not None
        either = pytest or unittest
        self._collecting = pytests.Collecting(pytest or not either, unittest or not either, self._others(commands))
        self._plain_unittest = unittest and not pytest and not re.search(r"discover|\s-s\b|manage\.py", commands)
        self._known: dict[tuple[str, frozenset[str]], Inventory] = {}

    def _others(self, commands: str) -> bool:
        """Whether tests may be in files that are not called as the runners' own rules say."""
        found = [commands, *(self._files.text(path) or "" for path in _SETTINGS if self._files.has(path))]
        return any(re.search(r"python_files|\s-p[\s=]|--pattern|_tests\.py", text) for text in found)

    def inventory(self, path: str, unread: frozenset[str] = frozenset()) -> Inventory:
        """The tests of a file. `unread`: those of which nobody has to know more than that they are there."""
        key = path, unread
        if key not in self._known:
            self._known[key] = self._inventory(path, unread)
        return self._known[key]

    def same(self, old: Languages, path: str) -> tuple[frozenset[str], frozenset[str]]:
        """Names of tests of a file that surely say the same here and on the other commit, and of those it had not."""
        if not path.endswith(".py"):
            return frozenset(), frozenset()
        return pytests.same(old.sources, self.sources, path, self._collecting)

    def _inventory(self, path: str, unread: frozenset[str]) -> Inventory:
        if path.endswith(".py"):
            return pytests.inventory(self.sources, path, self._collecting, unread)
        ending = path.rpartition(".")[2]
        if not is_test(path) and not (ending == "rs" and "#[test]" in (self._files.text(path) or "")):
            return Inventory()
        if re.fullmatch(r"[cm]?[jt]sx?", ending):
            return jstests.inventory(self._files, path)
        if ending in othertests.LANGUAGES or ending in othertests.SHELL:
            return othertests.inventory(self._files, path, ending)
        return Inventory()

    def opaque(self, path: str) -> bool:
        """Whether tests in it would not be seen."""
        return not path.endswith((".py", *(f".{ending}" for ending in (*othertests.LANGUAGES, *othertests.SHELL))))

    def takes(self, path: str) -> bool:
        """Whether the runner would look into a test file at this place."""
        if not path.endswith(".py"):
            return True
        if self._plain_unittest:
            above = path.split("/")[:-1]
            if any(not self._files.has("/".join([*above[: n + 1], "__init__.py"])) for n in range(len(above))):
                return False
        return self._collecting.takes(path)

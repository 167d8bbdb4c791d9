"""Paths of files that hold tests, by their names: for the tamper check and for whoever shows a change to people."""

from __future__ import annotations

import re

_TEST = re.compile(
    r"[^/]*[._-](test|spec|tests|specs)\.[cm]?[jt]sx?|[^/]*_test\.(go|rb|exs|dart|cc|cpp|c|lua|rs|ml|clj|erl)"
    r"|test[_-][^/]*\.(rb|cc|cpp|c|lua|[cm]?[jt]sx?|sh|bash|R|pl|rs|php)|[^/]*[_.-]test\.(sh|bash|bats|php)"
    r"|[^/]*(Test|Tests|IT|Spec|TestCase)\.(java|kt|kts|groovy|scala|cs|php|swift|vb|fs)|[^/]*_spec\.(rb|lua|cr)"
    r"|[^/]*\.(bats|t)|test[^/]*\.py|[^/]*_tests?\.py"
)
_TEST_DIRECTORY = re.compile(r"(^|/)(__tests__|tests?)/(.*/)?[^/]+\.([cm]?[jt]sx?|sh|bash|rs|t)$")


def is_test_file(path: str) -> bool:
    """Return whether a file holds tests, by its name, or a script by its place."""
    return _TEST.fullmatch(path.rpartition("/")[2]) is not None or _TEST_DIRECTORY.search(path) is not None

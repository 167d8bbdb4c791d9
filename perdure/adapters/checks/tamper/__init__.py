"""Signs of weakened tests in a change, found by reading files and not by running them: tests that are gone and that no
experiment covers, which `activities.run_tests` puts into its report, and hints for a reviewer, which
`findings.engine_findings` lists.

source_tests   the tests in one file, by name, without what stands in comments and strings
missing_tests  tests of the base that are gone or skipped where no run shows it: hits, which make the verdict red
hints          changes to look at, with their lines: never a verdict
"""

from __future__ import annotations

from perdure.adapters.checks.tamper.hints import find_hints
from perdure.adapters.checks.tamper.missing_tests import find_missing_tests, with_missing_tests
from perdure.adapters.checks.trees import DifferingFiles

__all__ = ["DifferingFiles", "find_hints", "find_missing_tests", "with_missing_tests"]

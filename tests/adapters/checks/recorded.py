"""Reports and exit codes of pytest 9, recorded: a shell script does it again, without a pytest that runs."""

from __future__ import annotations

from collections.abc import Mapping

COMMAND = "./pytest"

_PLAYER = """\
#!/bin/sh
report=${PYTEST_ADDOPTS#*--junit-xml=}
test -e recorded.xml && cat recorded.xml > "${report%% *}"
cat said
"""

_SUITE = (
    '<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest" errors="0" '
    'failures="0" skipped="0" tests="0" time="0.156" timestamp="2026-11-22T09:15:46.636787+00:00" hostname="vm">'
    "{}</testsuite></testsuites>"
)

PASSED = (
    '<testcase classname="tests.test_x" name="test_a" file="tests/test_x.py" line="0" time="0.001" />'
    '<testcase classname="tests.test_x" name="test_b" file="tests/test_x.py" line="3" time="0.001" />'
)
FAILED = """\
<testcase classname="tests.test_x.TestC" name="test_zero" file="tests/test_x.py" line="7" time="0.001">\
<failure message="AssertionError: no zero&#10;assert 1 == 0">self = &lt;test_x.TestC object at 0x7f18f88a1310&gt;

    def test_zero(self):
&gt;       assert 1 == 0, 'no zero'
E       AssertionError: no zero
E       assert 1 == 0

tests/test_x.py:9: AssertionError</failure></testcase>"""
UNLOADED = """\
<testcase classname="" name="tests.test_y" file="tests/test_y.py" time="0.000">\
<error message="collection failure">ImportError while importing test module '/tmp/r/tests/test_y.py'.
tests/test_y.py:1: in &lt;module&gt;
    import nothing_of_that_name
E   ModuleNotFoundError: No module named 'nothing_of_that_name'</error></testcase>"""


def recorded(code: int, cases: str | None, *, play: str = "", says: str = "") -> Mapping[str, str]:
    """Files of a tree in which `./pytest` reports these cases and exits so.

    cases  None: no report is written
    play   lines of shell that come before its end
    """
    report = {} if cases is None else {"recorded.xml": _SUITE.format(cases)}
    return {"pytest": f"{_PLAYER}{play}\nexit {code}\n", "said": says, **report}

"""Reports: read case by case, refused when they are not what they claim."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.checks.junit import BadReport, read_junit
from perdure.models.checks.report import TestCase
from perdure.models.limits import CASE_MESSAGE_CHARS

ROOT = Path("/tree")


def cases(tmp_path: Path, text: str) -> tuple[TestCase, ...]:
    path = tmp_path / "junit.xml"
    path.write_text(text)
    return read_junit(path, ROOT)


def test_cases_directly_below_the_root_are_seen(tmp_path: Path) -> None:
    found = cases(
        tmp_path,
        '<testsuites tests="0"><testcase name="top" classname="test" time="0.5"><failure message="no"/></testcase>'
        '<testsuite name="s"><testcase name="inner" classname="test"/></testsuite></testsuites>',
    )
    assert [(case.name, case.outcome) for case in found] == [("top", "failed"), ("inner", "passed")]
    assert found[0].duration_s == 0.5


def test_names_are_what_a_person_would_give_to_the_runner(tmp_path: Path) -> None:
    found = cases(
        tmp_path,
        '<testsuite><testcase classname="tests.test_x" file="tests/test_x.py" name="test_a"/>'
        '<testcase classname="tests.test_x.TestC" file="tests/test_x.py" name="test_b"/>'
        '<testcase classname="src/x.test.ts" file="/tree/src/x.test.ts" name="adds"/>'
        '<testcase classname="com.x.Test" name="c"/><testcase/></testsuite>',
    )
    assert [case.name for case in found] == [
        "tests/test_x.py::test_a",
        "tests/test_x.py::TestC::test_b",
        "src/x.test.ts::adds",
        "com.x.Test::c",
        "unnamed",
    ]


def test_outcomes(tmp_path: Path) -> None:
    found = cases(
        tmp_path,
        '<testsuite><testcase name="a"><skipped/><failure/></testcase><testcase name="b"><failure/><error/></testcase>'
        '<testcase name="c"><system-out>x</system-out></testcase></testsuite>',
    )
    assert [case.outcome for case in found] == ["skipped", "errored", "passed"]


def test_messages_keep_head_and_tail(tmp_path: Path) -> None:
    (case,) = cases(
        tmp_path,
        f'<testsuite><testcase name="a"><failure message="first">{"x" * 9000}last</failure></testcase></testsuite>',
    )
    assert CASE_MESSAGE_CHARS - 5 < len(case.message) <= CASE_MESSAGE_CHARS
    assert case.message.startswith("first\nxxx")
    assert case.message.endswith("xlast")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not valid XML"),
        ("<testsuite><testcase", "not valid XML"),
        ("<html/>", "its root is <html>"),
        (
            '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><testsuite>&a;</testsuite>',
            "not valid",
        ),
        ('<?xml version="1.0" encoding="none"?><testsuite/>', "unknown encoding"),
    ],
)
def test_anything_else_is_no_report(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(BadReport, match=why):
        cases(tmp_path, text)


def test_a_missing_report_and_a_link_are_no_report(tmp_path: Path) -> None:
    with pytest.raises(BadReport, match="no report was written"):
        read_junit(tmp_path / "absent.xml", ROOT)
    (tmp_path / "real.xml").write_text("<testsuite/>")
    (tmp_path / "link.xml").symlink_to("real.xml")
    with pytest.raises(BadReport, match="no report was written"):
        read_junit(tmp_path / "link.xml", ROOT)

"""Reports that no parser of XML accepts as they are: what their characters say is kept, and what is stored can be read
back."""

from __future__ import annotations

import codecs
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.checks import report_text
from perdure.adapters.checks.command_result import read_go_events
from perdure.adapters.checks.junit import BadReport, read_junit
from perdure.adapters.checks.report_receiver import split_documents
from perdure.adapters.checks.runners.base import RunPlace, case_identifier
from perdure.adapters.checks.verdict import verdict_of
from perdure.models.checks.report import Tampering, TamperingHit, TestCase, TestReport
from perdure.models.config.repository import TestCommand
from perdure.models.limits import CASE_NAME_CHARS
from tests.needs import require
from tests.sandboxes import Bench, Files

IDENTIFY = case_identifier(RunPlace(Path("/tree"), "", Path("/tree")))


def read(directory: Path, report: bytes | str) -> tuple[TestCase, ...]:
    path = directory / "report.xml"
    path.write_bytes(report.encode() if isinstance(report, str) else report)
    return read_junit(path, IDENTIFY)


def named(name: str, declared: str = "") -> str:
    declaration = f'<?xml version="1.0" encoding="{declared}"?>\n' if declared else ""
    return f'{declaration}<testsuite><testcase name="{name}"/></testsuite>'


@pytest.mark.parametrize(
    ("report", "name"),
    [
        (named("a\x1b[31mb"), r"a\x1b[31mb"),
        (named("a&#27;b&#x1B;c&#0027;"), r"a\x1bb\x1bc\x1b"),
        (named("\0\x08\x0b\ufffe\uffff"), r"\x00\x08\x0b\ufffe\uffff"),
        (named("&#0;&#xD800;&#xFFFF;&#x110000;"), r"\x00\ud800\uffff\ufffe"),
        (named("&#55357;&#56832; &#xD83D;&#xDE00; &#x1F600; 😀"), "😀 😀 😀 😀"),
        (named("tab&#9;&#233;"), "tab\té"),
        (named("a\xff").encode("latin-1"), r"a\xff"),
        (b'<testsuite><testcase name="\xed\xa0\x80"/></testsuite>', r"\xed\xa0\x80"),
        (named("é", "ISO-8859-1").encode("latin-1"), "é"),
        (named("é", "windows-1252").encode(), "é"),
        (named("é", "UTF-16").encode(), "é"),
        (named("é", "none").encode(), "é"),
        (named("é", "us-ascii").encode(), "é"),
        (named("日本", "Shift_JIS").encode("shift_jis"), "日本"),
        (codecs.BOM_UTF8 + named("é", "UTF-8").encode(), "é"),
        (codecs.BOM_UTF8 + named("é", "latin-1").encode(), "é"),
        (named("é", "UTF-8").encode("utf-16"), "é"),
        (named("é", "UTF-16").encode("utf-16-le"), "é"),
        (named("é", "UTF-16").encode("utf-16-be"), "é"),
        (named("é", "UTF-8").encode("utf-32"), "é"),
        ("\n \t" + named("é", "UTF-8"), "é"),
        (
            named("a").replace("<testsuite>", "<!-- &#27; \x1b <![CDATA[ --><testsuite>&#27;<![CDATA[ &#27; <!-- ]]>"),
            "a",
        ),
        ('<?xml version="1.1"?>' + named("a&#1;"), r"a\x01"),
        (named(""), "unnamed"),
    ],
)
def test_a_name_is_read_whatever_its_bytes_are(tmp_path: Path, report: bytes | str, name: str) -> None:
    (case,) = read(tmp_path, report)
    assert (case.name, case.outcome) == (name, "passed")


@pytest.mark.parametrize("report", ["<testsuite><test\0case/>", named("a") + "&#27;", named("&#27"), named("&#x;")])
def test_cleaning_does_not_make_a_report_of_what_is_none(tmp_path: Path, report: str) -> None:
    with pytest.raises(BadReport, match="not valid XML"):
        read(tmp_path, report)


def test_colours_and_control_characters_are_not_in_a_message(tmp_path: Path) -> None:
    (case,) = read(
        tmp_path,
        '<testsuite><testcase name="a"><failure message="\x1b[31mred&#27;[0m">literal \\x1b[31m&#0; <![CDATA['
        "\x1b[1m&#27;]]>\x07é</failure></testcase></testsuite>",
    )
    assert case.message == "red\nliteral \\x1b[31m &#27;é"


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from(["\x1b", "&#27;", "&#xD83D;", "&#xDE00;", "<![CDATA[&#27;]]>", "-]", "é", "&lt;"])),
    st.integers(1, 50),
)
def test_pieces_of_any_size_are_read_as_one(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], size: int
) -> None:
    text = f'<testsuite><testcase name="a"><failure>{"".join(parts)}</failure></testcase></testsuite>'
    whole = read(tmp_path_factory.mktemp("whole"), text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_text, "_CHUNK", size)
        assert read(tmp_path_factory.mktemp("pieces"), text) == whole


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        *(
            (time, 0.0)
            for time in ("inf", "-inf", "nan", "NaN", "1e400", "-1", "1e300", "soon", "", "0,25", "9" * 5000)
        ),
        *(("0.25", 0.25), ("1,234.5", 1234.5), ("12,345,678.0", 0.0), ("1e1", 10.0)),
    ],
)
def test_a_time_is_one_that_a_test_can_take_or_none(tmp_path: Path, time: str, seconds: float) -> None:
    (case,) = read(tmp_path, f'<testsuite time="inf"><testcase name="a" time="{time}"/></testsuite>')
    assert case.duration_s == seconds


async def test_a_report_full_of_odd_bytes_leaves_a_result_that_can_be_read_back(bench: Bench, files: Files) -> None:
    text = '<testsuite><testcase name="a\0\x1b&#xD800;" time="inf"/><testcase name="b" time="1e400"/></testsuite>'
    root = files({"report.xml": text})
    (root / "copy.sh").write_text("cp report.xml $PERDURE_REPORT")
    command = TestCommand(name="t0", command="sh copy.sh", report="junit")
    report = await bench.run(root, command)
    assert [case.name for case in report.commands[0].cases] == ["a\\x00\\x1b\\ud800", "b"]
    assert report.commands[0].verdict == "passed"
    assert verdict_of(report).status == "green"
    assert TestReport.model_validate_json(report.model_dump_json()) == report


def test_events_of_go_with_odd_characters_are_names_that_can_be_stored(tmp_path: Path) -> None:
    path = tmp_path / "go.jsonl"
    lines = [
        {"Action": action, "Package": "p", "Test": test} for test in ("\ud800", "\0") for action in ("run", "pass")
    ]
    path.write_bytes(
        b"\xef\xbb\xbf{}\n" + b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        + b'{"Action":"pass","Package":"p","Test":"\xff","Elapsed":' + b"9" * 100 + b"}\n"
        + b'{"Action":"pass","Package":"p","Elapsed":1e999}\n'
    )  # fmt: skip
    names = [case.name for case in read_go_events(path)]
    assert names == ["p::\\ud800", "p::\0", "p::�"]
    assert json.loads(json.dumps(names).encode()) == names


def test_names_of_a_megabyte_stay_apart_and_are_short(tmp_path: Path) -> None:
    names = ["n" * 1024**2 + end for end in "ab"]
    cases = read(tmp_path, "<testsuite>" + "".join(f'<testcase name="{name}"/>' for name in names) + "</testsuite>")
    assert len({case.name for case in cases}) == 2
    assert all(len(case.name) < CASE_NAME_CHARS + 100 for case in cases)


async def test_an_escape_in_a_title_of_node_does_not_make_a_green_suite_red(bench: Bench, files: Files) -> None:
    require("node")
    text = (
        "const test = require('node:test');\n"
        r"test('prints \x1b[31mred\x1b[0m', () => {}); test('zero \0', () => {}); test('half \ud800', () => {});"
        "\n"
        r"test('skipped', { skip: 'for \x07' }, () => {}); console.log('\x1b[1m\x00\x07');"
    )
    root = files({"a.test.js": text})
    assert (await bench.one(root, "node --test")).verdict == "passed"
    own = "node --test --test-reporter=junit --test-reporter-destination=$PERDURE_REPORT"
    result = await bench.one(root, TestCommand(name="t0", command=own, report="junit"))
    assert (result.verdict, result.reason) == ("passed", "")
    assert [case.name.rpartition("::")[2] for case in result.cases] == [
        r"prints \x1b[31mred\x1b[0m",
        r"zero \x00",
        "half �",
        "skipped",
    ]


def test_a_report_about_a_file_whose_name_is_no_text_can_be_stored(tmp_path: Path) -> None:
    name = os.fsdecode(b"tests/caf\xe9.py")
    hit = TamperingHit(rule=Tampering.GONE, title=name, file=name)
    stored = TestReport(commit="c", tree="t", tampering=(hit,)).to_json()
    assert TestReport.model_validate_json(stored).tampering[0].file == "tests/caf?.py"


def test_a_document_that_a_test_has_printed_is_no_second_report(tmp_path: Path) -> None:
    head = '<?xml version="1.0"?>'
    printed = f"<system-out><![CDATA[{head}<a/>{head}]]></system-out>"
    path = tmp_path / "report.xml"
    path.write_text(f"{head}<testsuite>{printed}</testsuite>")
    assert split_documents(path) == [path]
    path.write_text(f"{head}<testsuite>{printed}</testsuite>\n{head}<testsuite/>")
    assert [part.read_text()[-12:] for part in split_documents(path)] == ["/testsuite>\n", "<testsuite/>"]

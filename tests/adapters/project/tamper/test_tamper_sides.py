"""What the gate is given: commits that are not there, reports of older releases, commands that need not pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tamper_change import PYTEST, Change, told
from tamper_files import PY, PY_TESTS, PYTHON, edited

from perdure.adapters.git.door import GitError
from perdure.adapters.git.repository import Repository
from perdure.adapters.project.tamper import Files, Tampered, judged
from perdure.adapters.project.tamper.inventory import hit
from perdure.adapters.project.verdict import verdict
from perdure.models.report import CommandResult, Tampering, TestCase, TestReport

GONE = {PY: edited(PY_TESTS, "def test_zero", "def zero")}
OLD_REPORT = {
    "commit": "a" * 40,
    "tree": "b" * 40,
    "commands": [{"name": "t0", "command": PYTEST, "verdict": "passed", "cases": [
        {"name": name, "file": PY, "outcome": "passed"} for name in ("test_zero", "test_made")]}],
}  # fmt: skip


def report(*cases: str, required: bool = True) -> TestReport:
    result = CommandResult(
        name="t0",
        command=PYTEST,
        required=required,
        verdict="passed",
        cases=tuple(TestCase(name=name, file=PY, outcome="passed") for name in cases),
    )
    return TestReport(commit="c" * 40, tree="d" * 40, base="main", commands=(result,))


def test_a_commit_that_is_not_there_is_an_error_and_no_empty_answer(repository: Path) -> None:
    change = Change(repository, PYTHON, GONE)
    for base, head in (("0" * 40, change.head), (change.base, "0" * 40), ("none", change.head), (change.base, "-p")):
        with pytest.raises(GitError):
            Files.pair(Repository(repository), base, head)


def test_a_report_of_an_older_release_still_says_what_ran_on_the_base(repository: Path) -> None:
    old = TestReport.model_validate_json(json.dumps(OLD_REPORT))
    change = Change(repository, PYTHON, {PY: PY_TESTS + "\n"})
    assert told(change.judge(PYTEST, base=old, now=report("test_zero"))) == ["gone: test_made does not run any more"]
    assert told(change.judge(PYTEST, base=old, now=report("test_zero", "test_made"))) == []
    assert (old.tampering, old.allowed) == ((), False)


def test_hits_beside_optional_commands_are_told_and_nothing_is_shown_to_be_green(repository: Path) -> None:
    found = Change(repository, PYTHON, GONE).judge(PYTEST)
    optional = judged(report("test_one", required=False), found, allowed=False)
    assert [hit.title for hit in optional.tampering] == ["test_zero is gone"]
    assert verdict(optional).status == "none"
    assert verdict(judged(report("test_one"), found, allowed=False)).status == "red"


def test_the_note_names_the_commit_where_what_is_gone_can_be_read(repository: Path) -> None:
    long = {PY: PY_TESTS + "\n\ndef test_long():\n" + "    assert parse('1s') == 1\n" * 60}
    change = Change(repository, {**PYTHON, **long}, {PY: PY_TESTS})
    found = change.judge(PYTEST)
    assert found.hits[0].evidence.endswith("…")
    assert f"`git show {change.base[:12]}:FILE`" in judged(report("test_one"), found, allowed=False).note
    assert "git show" not in judged(report("test_one"), found, allowed=True).note


def test_a_title_holds_nothing_that_moves_a_cursor_or_turns_letters_round() -> None:
    made = hit(Tampering.GONE, "a\x1b[2J\u202e\u200b\x07 b\nc", "x")
    assert made.title == "a[2J b c"


def test_without_hits_a_report_stays_as_it_is() -> None:
    assert judged(report("a"), Tampered(), allowed=False) == report("a")

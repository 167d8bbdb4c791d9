"""Events of `go test -json` are read as cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.adapters.checks.command_result import read_go_events
from perdure.adapters.checks.junit import BadReport


def events(tmp_path: Path, *lines: dict[str, str] | str) -> Path:
    file = tmp_path / "go.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return file


def event(action: str, test: str = "", package: str = "p", **more: str) -> dict[str, str]:
    return {"Action": action, "Package": package, **({"Test": test} if test else {}), **more}


def test_each_test_has_its_outcome_and_what_never_ended_has_failed(tmp_path: Path) -> None:
    file = events(
        tmp_path,
        *(event("run", "A"), event("output", "A", Output="sum\n"), event("fail", "A")),
        *(event("run", "B"), event("pass", "B"), event("run", "C"), event("skip", "C"), event("run", "D")),
        *(
            "# what a build says",
            "FAIL\ts [build failed]",
            event("fail"),
            event("fail", package="q"),
            event("pass", package="r"),
        ),
    )
    found = [(case.name, case.outcome, case.message) for case in read_go_events(file)]
    assert found == [
        *(("p::A", "failed", "sum\n"), ("p::B", "passed", ""), ("p::C", "skipped", "")),
        *(("s", "errored", ""), ("q", "errored", ""), ("p::D", "failed", "")),
    ]


def test_packages_without_tests_have_no_cases_and_a_run_that_ended_none_has_no_report(tmp_path: Path) -> None:
    assert read_go_events(events(tmp_path, event("skip"))) == ()
    with pytest.raises(BadReport, match="the end of no package"):
        read_go_events(events(tmp_path, event("run", "A"), event("pass", "A")))


def test_no_file_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(BadReport, match="no report was written"):
        read_go_events(tmp_path / "none")

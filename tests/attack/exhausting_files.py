"""Words of models, repositories and their tests, made to exhaust who reads it; each a function."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path


def a_model_answer_nested_a_million_deep() -> None:
    from perdure.adapters.agents.builtin.answers import parse_answer
    from perdure.models.phases import Step

    parse_answer(Step.PLAN, '{"title": ' + "[" * 1_000_000)


def a_model_answer_with_a_number_of_60_000_digits() -> None:
    from perdure.adapters.agents.builtin.answers import parse_answer
    from perdure.models.phases import Step

    parse_answer(Step.REVIEW, '{"issues": [{"line": ' + "9" * 60_000 + "}]}")


def _report(text: str) -> None:
    from perdure.adapters.checks.junit import BadReport, read_junit
    from perdure.adapters.checks.runners.base import RunPlace, case_identifier

    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(text)
        file.flush()
        try:
            read_junit(Path(file.name), case_identifier(RunPlace(Path("/"), "", Path("/"))))
        except BadReport as error:
            raise ValueError(str(error)) from None


def a_billion_laughs_in_a_JUnit_report() -> None:
    names = "abcdefghij"
    entities = [f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise(names)]
    kinds = f"<!DOCTYPE x [<!ENTITY a 'ha'>{''.join(entities)}]>"
    _report(f"{kinds}<testsuite><testcase name='&j;'/></testsuite>")


def an_external_entity_in_a_JUnit_report() -> None:
    kinds = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    _report(f'{kinds}<testsuite><testcase name="n">&a;</testcase></testsuite>')


def a_JUnit_report_nested_a_million_deep() -> None:
    _report("<testsuite>" * 1_000_000)


def a_notes_file_without_end() -> None:
    from perdure.adapters.repository.config import read_notes

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "AGENTS.md").symlink_to("/dev/zero")
        with (Path(directory) / "CLAUDE.md").open("wb") as file:
            file.truncate(10 * 1024**3)  # of zeros, without a byte on disk
        notes = read_notes(Path(directory), ("AGENTS.md", "CLAUDE.md"))
        if sum(len(note.text) for note in notes) > 64 * 1024:
            raise AssertionError("it was read whole")


def a_tool_output_of_120_000_unended_escapes() -> None:
    from perdure.adapters.system.output import clean_output

    clean_output("\x1b]a" * 40_000)


def a_tool_output_of_one_long_line() -> None:
    from perdure.adapters.system.output import clean_output

    clean_output("a" * 120_000)


def a_go_mod_of_a_million_empty_lines() -> None:
    from perdure.adapters.repository.detect import detect_commands

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "go.mod").write_text("\n" * 1_000_000)
        detect_commands(Path(directory))


def _judged(name: str, before: str, after: str) -> None:
    """A change of one file, read for its tests and for hints as it is in a delivery."""
    from perdure.adapters.checks.tamper import DifferingFiles, find_hints, find_missing_tests
    from perdure.adapters.git.repository import Repository
    from perdure.models.config.repository import TestCommand
    from tests.repositories import git

    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        git(work, "init", "-q", "--template=")
        for text in (before, after):
            (work / name).write_text(text)
            git(work, "add", "-A")
            git(work, "commit", "-qm", "x")
        command = TestCommand(name="unit", command="make test && npm test && pytest")
        files = DifferingFiles.between_commits(
            Repository(work / ".git"), git(work, "rev-parse", "HEAD^"), git(work, "rev-parse", "HEAD")
        )
        found = (*find_missing_tests(*files, [command]).hits, *find_hints(*files, [name]).places)
        raise ValueError("; ".join(hit.title for hit in found) or "no hit")


def a_pom_xml_of_unended_comments() -> None:
    _judged("pom.xml", "<project/>", "<!--" * 250_000)


def a_Makefile_of_a_million_spaces() -> None:
    _judged("Makefile", "test:\n\ttrue\n", "a" + " " * 1_000_000 + "x\n")


def a_JavaScript_test_of_unended_braces() -> None:
    _judged("a.test.js", "test('a', () => {})", "const {" * 140_000)


def a_Python_test_of_16_000_minus_signs() -> None:
    _judged("test_a.py", "def test_a():\n    assert 1\n", "x = " + "-" * 16_000 + "1\n")


def _detected(name: str, text: str) -> None:
    """A file that maintainers write, read for their tests."""
    from perdure.adapters.repository.detect import detect_commands

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        detect_commands(Path(directory))


def a_Makefile_of_a_thousand_options() -> None:
    _detected("Makefile", "test:\n" + f"\tmake {'-a ' * 1_000}x\n" * 20)


def a_Makefile_with_a_path_of_slashes() -> None:
    _detected("Makefile", "test:\n\tpython " + "a/" * 400_000 + "\n")


def a_tox_ini_of_open_braces() -> None:
    _detected("tox.ini", "[tox]\nenvlist = " + "{" * 900_000 + "\n[testenv]\ndeps =\n  " + "{a,b}" * 9 + "x: y\n")


def a_tox_ini_of_a_million_environments() -> None:
    _detected("tox.ini", "[tox]\nenvlist = " + ("{a,b,c}-" * 500 + "x,") * 300 + "\n[testenv]\ncommands = pytest\n")


def a_workflow_nested_a_million_deep() -> None:
    _detected(".github/workflows/a.yml", "[" * 120_000)


def a_workflow_of_aliases_that_double() -> None:
    text = "a0: &a0 {run: pytest}\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    _detected(".github/workflows/a.yml", text)


def a_guide_of_one_long_line() -> None:
    _detected("CONTRIBUTING.md", "    pytest " + "a" * 1_000_000)


def a_noxfile_of_minus_signs() -> None:
    _detected("noxfile.py", "x = " + "-" * 900_000 + "1\n")


def a_test_that_prints_one_long_line_about_its_environment() -> None:
    from perdure.cli.host.red_reasons import explain_red
    from perdure.models.checks.report import CommandResult, TestCase

    text = "environ " * 30_000 + "A_" * 100_000
    cases = tuple(TestCase(name=f"{n}", outcome="failed", message=text) for n in range(20))
    result = CommandResult(name="n", command="c", verdict="failed", reason="exit code 1", tail=text, cases=cases)
    explain_red(result, False, False)

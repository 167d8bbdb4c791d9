"""Texts made to exhaust who reads them. Each is read in a child process with limits, and has to be refused in words.

`python -m tests.attack.exhausting [NAME…]` prints `NAME<tab>what was seen` for each that ended.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

from perdure.models.errors import PerdureError

CPU_S, MEMORY_BYTES = 30, 1536 * 1024**2
"""Of one child for all cases: reading them all takes 3 s and 150 MB; any of them unbounded takes more than this."""

CASES: dict[str, Callable[[], str]] = {}
"""Name → what reads it; returns what was seen, and anything but `refused: …` or `read` is a miss."""


def case(read: Callable[[], object]) -> Callable[[], object]:
    def seen() -> str:
        try:
            read()
        except (PerdureError, ValueError) as error:
            return f"refused: {' '.join(str(error).split())[:100]}"
        return "read"

    CASES[read.__name__.replace("_", " ")] = seen
    return read


def run(names: Iterable[str] = ()) -> dict[str, str]:
    """What each case came to. A case that ends the child is missing, and the others go on in another child."""
    left, seen = list(names or CASES), dict[str, str]()
    while left:
        command = [sys.executable, "-m", "tests.attack.exhausting", *left]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, preexec_fn=_limit)
        told = dict(line.split("\t", 1) for line in ran.stdout.splitlines() if "\t" in line)
        seen |= told
        left = left[len(told) + 1 :]
    return seen


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _toml(text: str) -> None:
    from perdure.adapters.project.config import load_repository_config

    load_repository_config(text, "perdure.toml")


@case
def a_dotted_key_of_100_KB_in_perdure_toml() -> None:
    _toml("version = 1\n" + "a." * 50_000 + "a = 1\n")


@case
def a_dotted_key_of_50_KB_in_perdure_toml() -> None:
    _toml("version = 1\n" + "a." * 25_000 + "a = 1\n")


@case
def a_dotted_key_between_what_looks_like_one_string_in_perdure_toml() -> None:
    _toml('version = 1\nx = ["""\n\' """, {' + "a." * 25_000 + 'a = 1}, "\'"]\n')


@case
def a_dotted_key_behind_a_string_that_ends_in_quotes_in_perdure_toml() -> None:
    _toml('version = 1\nx = ["""a"""", {' + "a." * 25_000 + 'a = 1}, "b"]\n')


@case
def a_dotted_table_header_in_perdure_toml() -> None:
    _toml("version = 1\n[" + "a." * 25_000 + "a]\n")


@case
def lists_nested_30_000_deep_in_perdure_toml() -> None:
    _toml("version = 1\nx = " + "[" * 30_000 + "]" * 30_000 + "\n")


@case
def tables_nested_400_deep_in_perdure_toml() -> None:
    _toml("version = 1\nx = " + "{a=" * 400 + "1" + "}" * 400 + "\n")


@case
def a_number_of_60_000_digits_in_perdure_toml() -> None:
    _toml(f"version = 1\n[limits]\ntest_fixes = {'9' * 60_000}\n")


@case
def a_hexadecimal_number_of_60_000_digits_in_perdure_toml() -> None:
    _toml(f"version = 1\n[limits]\ntest_fixes = 0x{'f' * 60_000}\n")


@case
def a_wrong_key_below_a_list_of_20_000_lines_in_perdure_toml() -> None:
    _toml("version = 1\n[setup]\ncommands = [\n" + "'',\n" * 14_000 + "]\nnonsense = 1\n")


@case
def a_perdure_toml_of_10_MB() -> None:
    _toml("version = 1\n" + "# nothing\n" * 1_000_000)


@case
def a_duration_of_60_000_digits() -> None:
    _toml(f"version = 1\n[limits]\ntime = '{'9' * 60_000}'\n")


@case
def a_duration_of_many_ages() -> None:
    _toml(f"version = 1\n[limits]\ntime = '{'9' * 30}h'\n")


@case
def a_command_of_60_000_characters() -> None:
    _toml(f"version = 1\n[[test]]\nname = 'x'\ncommand = '{'x' * 60_000}'\n")


def _branch(template: str) -> str:
    from perdure.adapters.project.terms import branch_of
    from perdure.models.request import DeliveryRequest

    return branch_of(template, "d" * 80, DeliveryRequest(repository="/r", request="x"), None, "perdure.toml")


@case
def a_branch_1_5_GB_wide() -> None:
    _branch("{id:>1500000000}")


@case
def a_branch_padded_by_its_own_conversion() -> None:
    _branch("{id!r:^1500000000}")


@case
def a_branch_that_repeats_its_id_100_000_times() -> None:
    _branch("{id}" * 100_000)


@case
def a_user_file_of_10_MB() -> None:
    from perdure.adapters.project.host import load_host_config

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write("# nothing\n" * 1_000_000)
        file.flush()
        load_host_config({}, Path(file.name))


@case
def an_endless_file_after_config() -> None:
    from perdure.cli.intake import read_config

    read_config(Path("/dev/zero"))


@case
def an_endless_screenplay() -> None:
    from perdure.rehearsal.screenplay import Screenplay

    Screenplay.load(Path("/dev/zero"))


@case
def a_dotted_key_in_a_screenplay() -> None:
    from perdure.rehearsal.screenplay import Screenplay

    Screenplay.parse("a." * 50_000 + "a = 1\n")


@case
def a_dotted_key_in_a_pyproject_toml() -> None:
    from perdure.adapters.project.reading import read_toml

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write("a." * 50_000 + "a = 1\n")
        file.flush()
        if read_toml(Path(file.name)):
            raise AssertionError("it was parsed")


def _plan(text: str) -> None:
    from perdure.cli.planfile import parsed

    parsed(text, markdown=False)


@case
def a_billion_laughs_in_a_plan() -> None:
    lines = ["a: &a [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in pairwise("abcdefghi")]
    _plan("\n".join(lines))


@case
def a_billion_merged_tables_in_a_plan() -> None:
    lines = ["a: &a {x: 1}"]
    lines += [f"{b}: &{b} {{<<: [{', '.join([f'*{a}'] * 40)}]}}" for a, b in pairwise("abcdefgh")]
    _plan("\n".join(lines))


@case
def lists_nested_30_000_deep_in_a_plan() -> None:
    _plan("title: " + "[" * 30_000)


@case
def lists_nested_by_dashes_in_a_plan() -> None:
    _plan("- " * 30_000)


@case
def a_number_of_60_000_digits_in_a_plan() -> None:
    _plan(f"title: {'9' * 60_000}")


def _request(raw: object) -> None:
    from temporalio.api.common.v1 import Payload

    from perdure.models.request import parse_request
    from perdure.plugin import Understanding

    text = raw if isinstance(raw, str) else json.dumps(raw)
    payload = Payload(metadata={"encoding": b"json/plain"}, data=text.encode())
    parse_request(Understanding().from_payloads([payload])[0])


_ASKED = {"repository": "/r", "request": "x"}


@case
def a_request_nested_a_million_deep() -> None:
    _request("[" * 1_000_000)


@case
def a_request_with_a_budget_of_60_000_digits() -> None:
    _request('{"repository": "/r", "request": "x", "tokens": ' + "9" * 60_000 + "}")


@case
def a_request_with_an_issue_of_60_000_digits() -> None:
    _request('{"repository": "/r", "issue": ' + "9" * 60_000 + "}")


@case
def a_request_with_a_million_unknown_fields() -> None:
    _request(_ASKED | {f"field{n}": 1 for n in range(100_000)})


@case
def a_request_that_resumes_from_a_state_of_1_MB() -> None:
    from perdure.models.request import parse_request
    from perdure.models.state import parse_resume

    raw = _ASKED | {"resume": {"run_id": "r", "state": {"notes": ["x" * 1000] * 1000}}}
    resume = parse_request(raw).resume
    assert resume is not None
    parse_resume(resume)


@case
def a_model_answer_nested_a_million_deep() -> None:
    from perdure.adapters.agents.answers import read_answer
    from perdure.models.phases import Step

    read_answer(Step.PLAN, '{"title": ' + "[" * 1_000_000)


@case
def a_model_answer_with_a_number_of_60_000_digits() -> None:
    from perdure.adapters.agents.answers import read_answer
    from perdure.models.phases import Step

    read_answer(Step.REVIEW, '{"issues": [{"line": ' + "9" * 60_000 + "}]}")


def _report(text: str) -> None:
    from perdure.adapters.project.junit import BadReport, read_junit

    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(text)
        file.flush()
        try:
            read_junit(Path(file.name), Path("/"))
        except BadReport as error:
            raise ValueError(str(error)) from None


@case
def a_billion_laughs_in_a_JUnit_report() -> None:
    names = "abcdefghij"
    entities = [f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise(names)]
    kinds = f"<!DOCTYPE x [<!ENTITY a 'ha'>{''.join(entities)}]>"
    _report(f"{kinds}<testsuite><testcase name='&j;'/></testsuite>")


@case
def an_external_entity_in_a_JUnit_report() -> None:
    kinds = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    _report(f'{kinds}<testsuite><testcase name="n">&a;</testcase></testsuite>')


@case
def a_JUnit_report_nested_a_million_deep() -> None:
    _report("<testsuite>" * 1_000_000)


@case
def a_notes_file_without_end() -> None:
    from perdure.adapters.project.notes import read_notes

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "AGENTS.md").symlink_to("/dev/zero")
        with (Path(directory) / "CLAUDE.md").open("wb") as file:
            file.truncate(10 * 1024**3)  # of zeros, without a byte on disk
        notes = read_notes(Path(directory), ("AGENTS.md", "CLAUDE.md"))
        if sum(len(note.text) for note in notes) > 64 * 1024:
            raise AssertionError("it was read whole")


@case
def a_tool_output_of_120_000_unended_escapes() -> None:
    from perdure.adapters.sandbox.output import clean

    clean("\x1b]a" * 40_000)


@case
def a_tool_output_of_one_long_line() -> None:
    from perdure.adapters.sandbox.output import clean

    clean("a" * 120_000)


@case
def a_go_mod_of_a_million_empty_lines() -> None:
    from perdure.adapters.project.detect import detect

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "go.mod").write_text("\n" * 1_000_000)
        detect(Path(directory))


def _judged(name: str, before: str, after: str) -> None:
    """A change of one file, looked at by the tamper gate as it is in a delivery."""
    from perdure.adapters.git.repository import Repository
    from perdure.adapters.project.tamper import Files, apart, tampering
    from perdure.models.config import TestCommand
    from tests.targets import git

    apart.TAMPER_CPU_S = 3  # what is to be seen is that it ends
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        git(work, "init", "-q", "--template=")
        for text in (before, after):
            (work / name).write_text(text)
            git(work, "add", "-A")
            git(work, "commit", "-qm", "x")
        command = TestCommand(name="unit", command="make test && npm test && pytest")
        files = Files.pair(Repository(work / ".git"), git(work, "rev-parse", "HEAD^"), git(work, "rev-parse", "HEAD"))
        raise ValueError("; ".join(hit.title for hit in tampering(*files, [command], None, None).hits) or "no hit")


@case
def a_pom_xml_of_unended_comments() -> None:
    _judged("pom.xml", "<project/>", "<!--" * 250_000)


@case
def a_Makefile_of_a_million_spaces() -> None:
    _judged("Makefile", "test:\n\ttrue\n", "a" + " " * 1_000_000 + "x\n")


@case
def a_JavaScript_test_of_unended_braces() -> None:
    _judged("a.test.js", "test('a', () => {})", "const {" * 140_000)


@case
def a_Python_test_of_16_000_minus_signs() -> None:
    _judged("test_a.py", "def test_a():\n    assert 1\n", "x = " + "-" * 16_000 + "1\n")


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print(name, CASES[name](), sep="\t", flush=True)

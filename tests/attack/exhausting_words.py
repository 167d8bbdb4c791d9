"""Texts that people write, made to exhaust who reads it: settings, screenplays, plans, requests; each a function."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path


def _toml(text: str) -> None:
    from perdure.adapters.repository.config import load_repository_config

    load_repository_config(text, "perdure.toml")


def a_dotted_key_of_100_KB_in_perdure_toml() -> None:
    _toml("version = 1\n" + "a." * 50_000 + "a = 1\n")


def a_dotted_key_of_50_KB_in_perdure_toml() -> None:
    _toml("version = 1\n" + "a." * 25_000 + "a = 1\n")


def a_dotted_key_between_what_looks_like_one_string_in_perdure_toml() -> None:
    _toml('version = 1\nx = ["""\n\' """, {' + "a." * 25_000 + 'a = 1}, "\'"]\n')


def a_dotted_key_behind_a_string_that_ends_in_quotes_in_perdure_toml() -> None:
    _toml('version = 1\nx = ["""a"""", {' + "a." * 25_000 + 'a = 1}, "b"]\n')


def a_dotted_table_header_in_perdure_toml() -> None:
    _toml("version = 1\n[" + "a." * 25_000 + "a]\n")


def lists_nested_30_000_deep_in_perdure_toml() -> None:
    _toml("version = 1\nx = " + "[" * 30_000 + "]" * 30_000 + "\n")


def tables_nested_400_deep_in_perdure_toml() -> None:
    _toml("version = 1\nx = " + "{a=" * 400 + "1" + "}" * 400 + "\n")


def a_number_of_60_000_digits_in_perdure_toml() -> None:
    _toml(f"version = 1\n[limits]\ntest_fixes = {'9' * 60_000}\n")


def a_hexadecimal_number_of_60_000_digits_in_perdure_toml() -> None:
    _toml(f"version = 1\n[limits]\ntest_fixes = 0x{'f' * 60_000}\n")


def a_wrong_key_below_a_list_of_10_000_lines_in_perdure_toml() -> None:
    _toml("version = 1\n[setup]\ncommands = [\n" + "'',#\n" * 10_000 + "]\nnonsense = 1\n")


def a_perdure_toml_of_10_MB() -> None:
    _toml("version = 1\n" + "# nothing\n" * 1_000_000)


def a_duration_of_60_000_digits() -> None:
    _toml(f"version = 1\n[limits]\ntime = '{'9' * 60_000}'\n")


def a_duration_of_many_ages() -> None:
    _toml(f"version = 1\n[limits]\ntime = '{'9' * 30}h'\n")


def a_command_of_60_000_characters() -> None:
    _toml(f"version = 1\n[[test]]\nname = 'x'\ncommand = '{'x' * 60_000}'\n")


def _branch(template: str) -> str:
    from perdure.adapters.repository.terms import branch_name
    from perdure.models.delivery.request import DeliveryRequest

    return branch_name(template, "d" * 80, DeliveryRequest(repository="/r", request="x"), None, "perdure.toml")


def a_branch_1_5_GB_wide() -> None:
    _branch("{id:>1500000000}")


def a_branch_padded_by_its_own_conversion() -> None:
    _branch("{id!r:^1500000000}")


def a_branch_that_repeats_its_id_100_000_times() -> None:
    _branch("{id}" * 100_000)


def a_user_file_of_10_MB() -> None:
    from perdure.adapters.repository.host import load_host_config

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write("# nothing\n" * 1_000_000)
        file.flush()
        load_host_config({}, Path(file.name))


def an_endless_file_after_config() -> None:
    from perdure.cli.request.repository import read_config

    read_config(Path("/dev/zero"))


def an_endless_screenplay() -> None:
    from perdure.rehearsal.screenplay import Screenplay

    Screenplay.load(Path("/dev/zero"))


def a_dotted_key_in_a_screenplay() -> None:
    from perdure.rehearsal.screenplay import Screenplay

    Screenplay.parse("a." * 50_000 + "a = 1\n")


def a_dotted_key_in_a_pyproject_toml() -> None:
    from perdure.adapters.system.bounded import read_toml

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write("a." * 50_000 + "a = 1\n")
        file.flush()
        if read_toml(Path(file.name)):
            raise AssertionError("it was parsed")


def _plan(text: str) -> None:
    from perdure.client.yaml_files import parse_plan

    parse_plan(text, markdown=False)


def a_billion_laughs_in_a_plan() -> None:
    lines = ["a: &a [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in pairwise("abcdefghi")]
    _plan("\n".join(lines))


def a_billion_merged_tables_in_a_plan() -> None:
    lines = ["a: &a {x: 1}"]
    lines += [f"{b}: &{b} {{<<: [{', '.join([f'*{a}'] * 40)}]}}" for a, b in pairwise("abcdefgh")]
    _plan("\n".join(lines))


def lists_nested_30_000_deep_in_a_plan() -> None:
    _plan("title: " + "[" * 30_000)


def lists_nested_by_dashes_in_a_plan() -> None:
    _plan("- " * 30_000)


def a_number_of_60_000_digits_in_a_plan() -> None:
    _plan(f"title: {'9' * 60_000}")


def _request(raw: object) -> None:
    from temporalio.api.common.v1 import Payload

    from perdure.converter import Understanding
    from perdure.models.delivery.request import parse_request

    text = raw if isinstance(raw, str) else json.dumps(raw)
    payload = Payload(metadata={"encoding": b"json/plain"}, data=text.encode())
    parse_request(Understanding().from_payloads([payload])[0])


_ASKED = {"repository": "/r", "request": "x"}


def a_request_nested_a_million_deep() -> None:
    _request("[" * 1_000_000)


def a_request_with_a_budget_of_60_000_digits() -> None:
    _request('{"repository": "/r", "request": "x", "tokens": ' + "9" * 60_000 + "}")


def a_request_with_an_issue_of_60_000_digits() -> None:
    _request('{"repository": "/r", "issue": ' + "9" * 60_000 + "}")


def a_request_with_a_million_unknown_fields() -> None:
    _request(_ASKED | {f"field{n}": 1 for n in range(100_000)})


def a_request_that_resumes_from_a_state_of_1_MB() -> None:
    from perdure.models.delivery.request import parse_request
    from perdure.models.delivery.state import parse_resume_state

    raw = _ASKED | {"resume": {"run_id": "r", "state": {"notes": ["x" * 1000] * 1000}}}
    resume = parse_request(raw).resume
    assert resume is not None
    parse_resume_state(resume)

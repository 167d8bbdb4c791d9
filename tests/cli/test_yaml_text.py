"""YAML as people mean it: words stay words, nothing is dropped in silence, each mistake has its line."""

from __future__ import annotations

import pytest

from perdure.client.yaml_files import InvalidYaml, parse_yaml


def test_what_looks_like_a_switch_a_time_or_an_octal_number_is_the_word_that_was_typed() -> None:
    text = "[no, on, yes, 010, 12:30, 2026-01-05, 1e3, 0x1f, 1_000, .inf, <<]"
    assert parse_yaml(text).data == [
        "no",
        "on",
        "yes",
        "010",
        "12:30",
        "2026-01-05",
        "1e3",
        "0x1f",
        "1_000",
        ".inf",
        "<<",
    ]
    assert parse_yaml("[true, False, null, ~, 12, -1, 2.5]").data == [True, False, None, None, 12, -1, 2.5]
    assert parse_yaml("a:\n").data == {"a": None}
    assert parse_yaml("").data is None


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "a: is given twice, in line 1 too"),
        ("items:\n  - id: x\n    id: y\n", 3, "id: is given twice, in line 2 too"),
        ("a: &x [1]\nb: *x\n", 1, "&names and *names are not read"),
        ("a: 1\nb: [\n", 3, "this is not YAML"),
        ("a:\n\t- b\n", 2, "this is not YAML"),
        ("a: 1\n---\nb: 2\n", 2, "this is not YAML"),
        ("a: !!timestamp 2026-01-05\n", 1, "this is not YAML"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "this is not YAML"),
        ("[a]: 1\n", 1, "a key has to be a word"),
        ("[" * 5000, 1, "nested deeper than"),
        ("a: \x00\n", 0, "this is not YAML"),
        ("request: Fix #12 in the parser\n", 1, "request: everything from # on would be lost: quote it"),
        ("request: #12 is broken\n", 1, "quote it"),
        ("request: Fix # 12\n", 1, "quote it"),
        ("request: 404 # on start\n", 1, "quote it"),
        ("a: 1\nrequest: Fix the\n  parser of #12\n", 3, "quote it"),
        ("- id: a\n  check:\n    - make smoke # fast\n", 3, "quote it"),
        ("- id: a\n  check: [make #all\n  , x]\n", 2, "quote it"),
        ("tasks:\n  - title: Support C # code\n", 2, "quote it"),
        ("request: Fix #12\n  in the parser\n", 2, "quote a text that holds `: ` or ` #`"),
        ("request: Fix: the parser\n", 1, "quote a text that holds `: `"),
        ("request: @ada asks\n", 1, "begins with a sign"),
        ("a:\n\t- b\n", 2, "indent by blanks, not by tabs"),
        ("- \tb: 1\n  c: 2\n", 1, "indent by blanks, not by tabs"),
    ],
)
def test_what_is_not_read_is_told_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(InvalidYaml) as error:
        parse_yaml(text)
    assert what in str(error.value)
    assert error.value.line == line


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("# all of it\na: b # one word\nlist: # below\n  - c # d\n", {"a": "b", "list": ["c"]}),
        ("repository: .                  # as for deliver\n", {"repository": "."}),
        ("priority: 2 #high\n", {"priority": 2}),
        ("request: 'Fix #12'   # quoted\n", {"request": "Fix #12"}),
        ('request: "Fix #12"\n', {"request": "Fix #12"}),
        ("request: |\n  Fix #12\n  # and this\n", {"request": "Fix #12\n# and this\n"}),
        ("request: > # folded\n  Fix #12\n", {"request": "Fix #12\n"}),
        ("request: Fix issue#12 in C#\n", {"request": "Fix issue#12 in C#"}),
        ("touches: [src/#a, b]   # both of them\n", {"touches": ["src/#a", "b"]}),
        ("\ufeffa: b\n", {"a": "b"}),
    ],
)
def test_comments_and_hashes_that_cut_nothing_are_read(text: str, data: object) -> None:
    assert parse_yaml(text).data == data


def test_a_field_has_a_line_and_one_that_is_missing_that_of_what_should_hold_it() -> None:
    found = parse_yaml("version: 1\nitems:\n  - id: a\n    request: x\n  - id: b\n")
    assert [found.line_of(loc) for loc in ((), ("items",), ("items", 0, "request"), ("items", 1, "request"))] == [
        1,
        2,
        4,
        5,
    ]

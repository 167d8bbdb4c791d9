from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.adapters.checks.globs import (
    covering_pattern,
    expand_alternatives,
    fnmatch_regex,
    path_regex,
    search_regexes,
)
from tests.costs import examples
from tests.repositories import PERSON


@pytest.mark.parametrize(
    ("path", "patterns", "by"),
    [
        (".github/workflows/ci.yml", (".github/**", "perdure.toml"), ".github/**"),
        ("docs/.github/x", (".github/**",), None),
        ("perdure.toml", ("perdure.toml",), "perdure.toml"),
        ("examples/a/perdure.toml", ("perdure.toml",), "perdure.toml"),
        ("examples/a/perdure.toml", ("/perdure.toml",), None),
        ("db/migrations/1.sql", ("migrations/",), "migrations/"),
        ("migrations", ("migrations/",), None),
        ("secrets/a", ("secrets/*", "!secrets/a"), None),
        ("secrets/a", ("!secrets/a", "secrets/*"), "secrets/*"),
        ("src/a/b/c.py", ("src/**/c.py",), "src/**/c.py"),
        ("a", ("", "#a", "/", "  "), None),
        ("#a", ("\\#a",), "\\#a"),
    ],
)
def test_a_path_is_covered_as_gitignore_would(path: str, patterns: tuple[str, ...], by: str | None) -> None:
    assert covering_pattern(path, patterns) == by


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert covering_pattern("a" * 200 + "b", ("*a" * 12 + "c",)) is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("path", ["a/" * 2000 + "b", "a" * 4000 + "b", ("a" * 20 + "/") * 190 + "b"])
def test_hostile_patterns_and_paths_end(path: str) -> None:
    for pattern in (
        "**/a/" * 50 + "c",
        "**/*a*/" * 30 + "c",
        "*a" * 140 + "c",
        "a*/" * 90 + "c",
        "/" + "*/**/" * 40 + "c",
    ):
        assert covering_pattern(path, (pattern,)) is None
        assert not re.fullmatch(path_regex(pattern), path, re.DOTALL)
        assert not re.fullmatch(fnmatch_regex(pattern), path)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("check_*.py", "pkg/check_a.py", True),
        ("check_*.py", "check_/a.py", False),
        ("spec/*.py", "spec/deep/a.py", True),  # fnmatch's star
        ("spec/*.py", "pkg/spec/a.py", True),
        ("*", "a/b", True),
    ],
)
def test_python_names_files_as_fnmatch_does(pattern: str, path: str, matches: bool) -> None:
    assert (re.fullmatch(fnmatch_regex(pattern), path) is not None) == matches


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("**/__tests__/**/*.?([mc])[jt]s?(x)", "src/__tests__/deep/a.mts"),
        ("**/?(*.)+(spec|test).?([mc])[jt]s?(x)", "a/b.spec.tsx"),
        ("**/?(*.)+(spec|test).?([mc])[jt]s?(x)", "test.js"),
        ("**/*.{test,spec}.?(c|m)[jt]s?(x)", "b.test.cjs"),
        ("src/{a,b/{c,d}}/*.js", "src/b/d/x.js"),
    ],
)
def test_javascript_names_files_by_choices(pattern: str, path: str) -> None:
    assert any(re.fullmatch(path_regex(one), path, re.DOTALL) for one in expand_alternatives(pattern))


@pytest.mark.parametrize("pattern", ["!(a)", "{a,b", "{a,b}" * 20, "((((", "?(a|b)" * 400])
def test_choices_beyond_reading_are_none(pattern: str) -> None:
    assert expand_alternatives(pattern) == ()


_part = st.sampled_from(["a", "b", "ab", "a.b", "*", "**", "a*", "*b", "?", "[ab]", "[!a]"])
_pattern = st.builds(
    lambda start, parts, end: start + "/".join(parts) + end,
    st.sampled_from(["", "/"]),
    st.lists(_part, min_size=1, max_size=5),
    st.sampled_from(["", "/"]),
)
_path = st.lists(st.sampled_from(["a", "b", "ab", "a.b", "c"]), min_size=1, max_size=6).map("/".join)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=_pattern, paths=st.lists(_path, min_size=1, max_size=6, unique=True))
def test_git_agrees_about_what_a_pattern_covers(tmp_path: Path, pattern: str, paths: list[str]) -> None:
    if not (tmp_path / ".git").exists():
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, env=PERSON, check=True, timeout=20)
    (tmp_path / ".git/info").mkdir(exist_ok=True)
    (tmp_path / ".git/info/exclude").write_text(pattern + "\n")
    asked = ["git", "check-ignore", "--no-index", "-z", "--stdin"]
    done = subprocess.run(
        asked, cwd=tmp_path, env=PERSON, input="\0".join(paths).encode(), capture_output=True, timeout=20, check=False
    )
    ignored = {name for name in done.stdout.decode().split("\0") if name}
    assert {path for path in paths if covering_pattern(path, [pattern])} == ignored


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (
            r"(/__tests__/.*|(\.|/)(test|spec))\.[jt]sx?$",
            ["__tests__/a.js", "a.test.tsx", "src/spec.ts"],
            ["a.js", "test/a.js"],
        ),
        (r".*\.spec\.ts$", ["src/a.spec.ts"], ["a.spec.tsx", "spec.ts"]),
        (r".e2e-spec.ts$", ["test/app.e2e-spec.ts"], ["e2e-spec.ts.js"]),
        (r"/checks/", ["checks/a.js", "src/checks/a.js"], ["mychecks/a.js"]),
        (r"\.(?:test|spec)\.m?js$", ["a.test.mjs", "a.spec.js"], ["a.tests.js"]),
    ],
)
def test_a_regular_expression_of_jest_is_looked_for_in_the_path(pattern: str, yes: list[str], no: list[str]) -> None:
    found = re.compile("|".join(search_regexes(pattern)))
    assert all(re.search(pattern, f"/{path}") for path in yes)
    assert [path for path in (*yes, *no) if found.fullmatch(path)] == yes


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "a*b",
        "^a",
        "(?!a)b",
        "(a",
        "a)",
        r"\d",
        "(a|b|c|d)" * 9,
        "(" * 5_000,
        "[a",
        "a{3}",
        r"(.*)\1",
        "((a?)?)*",
    ],
)
def test_a_regular_expression_whose_time_nobody_knows_is_not_read(pattern: str) -> None:
    assert search_regexes(pattern) == ()


@pytest.mark.timeout(20)
def test_a_regular_expression_of_many_stars_ends() -> None:
    (found,) = search_regexes(".*a" * 60 + "b$")
    assert re.fullmatch(found, "a" * 4_000) is None

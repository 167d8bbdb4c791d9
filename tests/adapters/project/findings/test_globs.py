from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from changes import PERSON
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.adapters.project.findings.globs import covering


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
    assert covering(path, patterns) == by


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert covering("a" * 200 + "b", ("*a" * 12 + "c",)) is None


_part = st.sampled_from(["a", "b", "ab", "a.b", "*", "**", "a*", "*b", "?", "[ab]", "[!a]"])
_pattern = st.builds(
    lambda start, parts, end: start + "/".join(parts) + end,
    st.sampled_from(["", "/"]),
    st.lists(_part, min_size=1, max_size=3),
    st.sampled_from(["", "/"]),
)
_path = st.lists(st.sampled_from(["a", "b", "ab", "a.b", "c"]), min_size=1, max_size=4).map("/".join)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    assert {path for path in paths if covering(path, [pattern])} == ignored

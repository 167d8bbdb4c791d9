"""`perdure deliver` in a repository without a commit: the base it will begin, and the reasons to commit first."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.git.remote import FIRST_COMMIT
from perdure.cli.commands.start import DeliverOptions
from perdure.cli.request.submit import base_line
from perdure.cli.request.validation import check_request
from perdure.models.errors import BadInput
from tests.engine import git

KEY = {"ANTHROPIC_API_KEY": "not-a-key"}


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "--initial-branch=trunk", "mine")
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return tmp_path / "mine"


def test_it_says_which_branch_will_be_begun_and_that_no_settings_are_there(empty: Path) -> None:
    taken = check_request(DeliverOptions(text="Write a calculator"), KEY)
    assert (taken.base, taken.base_sha) == ("trunk", FIRST_COMMIT)
    assert base_line(taken) == "empty: trunk begins with an empty commit, pushed before the delivery's branch"
    assert taken.file == "no perdure.toml: the repository is empty"
    assert git(empty, "for-each-ref") == ""


def test_what_was_not_committed_is_to_be_committed_first(empty: Path) -> None:
    (empty / "perdure.toml").write_text("version = 1\n")
    with pytest.raises(BadInput, match="1 uncommitted file") as refused:
        check_request(DeliverOptions(text="Write a calculator"), KEY)
    assert refused.value.fix.endswith("git add -A && git commit -m first")

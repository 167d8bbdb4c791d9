"""docs/github.md says what the code does: its variables exist, its examples name the issue they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from perdure.adapters.forges.github.server import URL
from perdure.adapters.forges.github.site import APP_ID, SECRET_VARIABLES
from perdure.adapters.repository.host import OTHER_VARIABLES, VARIABLES
from perdure.cli.request.issue import parse_issue_name
from perdure.models.issue import mentioned_issues

GUIDE = (Path(__file__).parents[2] / "docs" / "github.md").read_text(encoding="utf-8")


def test_every_variable_for_github_is_in_the_guide_and_no_other() -> None:
    named = set(re.findall(r"\b(?:PERDURE_[A-Z_]+|G(?:ITHUB|H)_[A-Z_]*TOKEN)\b", GUIDE))
    assert named >= {*SECRET_VARIABLES, URL, APP_ID}
    assert named <= {*SECRET_VARIABLES, URL, APP_ID, *OTHER_VARIABLES, *VARIABLES}


def test_every_way_to_name_the_issue_in_the_guide_names_it() -> None:
    block = GUIDE.split("All of these name the same one")[1].split("```")[1]
    commands = [shlex.split(line) for line in block.strip().splitlines()]
    assert len(commands) == 5
    for program, command, *words in commands:
        assert (program, command) == ("perdure", "deliver")
        option = words[words.index("--issue") + 1] if "--issue" in words else None
        texts = [word for word in words if word not in ("--issue", option)]
        name = parse_issue_name(option, texts[0] if texts else None)
        assert (name.number if name else mentioned_issues(texts[0])[0]) == 12

"""What the guide about questions says is so."""

from __future__ import annotations

import re
from pathlib import Path

from perdure.adapters.repository.config import load_repository_config
from perdure.models.delivery.decisions import Say
from perdure.models.delivery.steps import STEPS
from perdure.models.rules.inbox import DECISION_MODELS

GUIDE = (Path(__file__).parents[2] / "docs" / "questions.md").read_text(encoding="utf-8")


def test_the_steps_that_ask_are_the_ones_it_names() -> None:
    named = GUIDE.partition("In the steps")[2].partition("it has")[0]
    assert set(re.findall(r"`(\w+)`", named)) == {step for step, about in STEPS.items() if about.may_ask}


def test_its_settings_switch_questions_off_and_its_messages_are_understood() -> None:
    found = re.search(r"<!-- tested: perdure.toml -->\n```toml\n(.*?)```", GUIDE, re.DOTALL)
    assert found
    assert load_repository_config(found[1], "docs/questions.md").delivery.questions is False
    assert DECISION_MODELS["answer"].model_validate({"answer": "minus"})
    assert Say.model_validate({"text": "…"})

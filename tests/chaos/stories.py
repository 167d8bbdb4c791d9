"""Deliveries to make: small repositories, the model's screenplay for each, and what must come out whatever happens."""

from __future__ import annotations

import random
import textwrap
from dataclasses import dataclass

from tests.engine import CALC, FIXES, HAPPY

_ADD = textwrap.dedent(CALC["calc.py"])
_DOCUMENTED = (
    'def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    """The difference of two numbers."""\n    return a - b\n'
)

MODEL_FAULTS = ("408", "429", "500", "503", "529", "cut", "close", "stream_error", "not_json", "page")
"""Those that pass: the reply comes when it is asked for again."""

CUTS = ("cut", "close", "stream_error")
"""Of them, those that break off a reply which was begun, and paid for."""

_SPEECH_S = 0.3
"""Seconds each reply takes, so that kills find some of them half said."""


@dataclass(frozen=True)
class Story:
    """A delivery. `changed`: path → whole text, of all that the pull request may change; `steps`: its commits' steps
    in order; `github`: on the GitHub twin, else in a bare repository."""

    name: str
    screenplay: str
    changed: dict[str, str]
    steps: tuple[str, ...]
    github: bool = False


STORIES = (
    Story("happy", HAPPY, {"calc.py": _ADD + "\n\ndef sub(a, b):\n    return a - b\n"}, ("implement",)),
    Story("fixes", FIXES, {"calc.py": _DOCUMENTED}, ("implement", "fix_tests", "fix_review")),
    Story("github", FIXES, {"calc.py": _DOCUMENTED}, ("implement", "fix_tests", "fix_review"), github=True),
)


def told(story: Story, rng: random.Random) -> tuple[str, list[str]]:
    """The screenplay with up to two faults of the model in it, and which they are."""
    head, *lines = story.screenplay.split("[[line]]\n")
    lines = [f"seconds = {_SPEECH_S}\n{line}" for line in lines]
    faults = []
    for place in sorted(rng.sample(range(len(lines)), rng.randint(0, 2))):
        fault = rng.choice(MODEL_FAULTS)
        wait = "retry_after = 0.2\n" if fault.isdigit() else ""
        lines[place] = f'fault = "{fault}"\n{wait}{lines[place]}'
        faults.append(f"{fault} at line {place + 1}")
    return "[[line]]\n".join([head, *lines]), faults

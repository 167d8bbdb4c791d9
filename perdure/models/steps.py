"""The table of steps: for each, what it may do, what it is given, and what it has to answer.

A new agentic step is: its name in `perdure.models.phases`, a line here, its settings in `perdure.models.config`, its
prompt in `perdure/prompts/`, and its place in `workflows/steps.py` and `workflows/delivery.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from perdure.models.decomposition import Decomposition
from perdure.models.phases import Step
from perdure.models.plan import Plan
from perdure.models.report import Classification, Review


@dataclass(frozen=True)
class StepSpec:
    """The specification of a step: its rights, its material, and the answer it has to give.

    display_name        its name in the story of a delivery; empty where it is told by its number ("fix 1/4")
    agentic             carried out by an agent, in turns; the fields below are of such steps only
    writes              changes files, and is followed by a commit; the others only read
    fixes               begins from something that went wrong, and stays close to it
    gets_notes          is given the repository's own notes (AGENTS.md)
    gets_test_commands  is told the test commands
    may_ask             may ask a person: a requirement can be missing there; a reviewer judges by what was requested
    gets_messages       is told what people say meanwhile; a classification answers one of three words, a message would
                        be lost on it
    answer              the model of its structured answer; None: it answers in its own words
    rejection_intro     the text before the note with which a person rejected its result
    """

    display_name: str
    agentic: bool = False
    writes: bool = False
    fixes: bool = False
    gets_notes: bool = False
    gets_test_commands: bool = False
    may_ask: bool = False
    gets_messages: bool = True
    answer: type[BaseModel] | None = None
    rejection_intro: str = ""


STEPS: dict[Step, StepSpec] = {
    Step.PREPARE: StepSpec("prepare"),
    Step.CLASSIFY: StepSpec("classify", agentic=True, gets_messages=False, answer=Classification),
    Step.PLAN: StepSpec(
        "plan",
        agentic=True,
        gets_notes=True,
        gets_test_commands=True,
        may_ask=True,
        answer=Plan,
        rejection_intro="The plan above was shown to a person in charge of this delivery, who rejected it and says:",
    ),
    Step.DECOMPOSE: StepSpec(
        "decompose",
        agentic=True,
        gets_notes=True,
        gets_test_commands=True,
        may_ask=True,
        answer=Decomposition,
        rejection_intro="The items above were shown to a person in charge of this backlog, who rejected them and says:",
    ),
    Step.IMPLEMENT: StepSpec(
        "build", agentic=True, writes=True, gets_notes=True, gets_test_commands=True, may_ask=True
    ),
    Step.COMMIT: StepSpec("commit"),
    Step.DOCUMENT: StepSpec("docs", agentic=True, writes=True, may_ask=True),
    Step.RUN_TESTS: StepSpec("test"),
    Step.FIX_TESTS: StepSpec(
        "",
        agentic=True,
        writes=True,
        fixes=True,
        gets_test_commands=True,
        may_ask=True,
        rejection_intro="Nothing can tell which of these failures were there before the change. A "
        "person in charge of this "
        "delivery has looked, wants it mended and says:",
    ),
    Step.REVIEW: StepSpec("review", agentic=True, gets_notes=True, gets_test_commands=True, answer=Review),
    Step.FIX_REVIEW: StepSpec(
        "",
        agentic=True,
        writes=True,
        fixes=True,
        gets_test_commands=True,
        may_ask=True,
        rejection_intro="The change above was shown to a person in charge of this delivery, who wants it published "
        "otherwise and says:",
    ),
    Step.OPEN_PULL_REQUEST: StepSpec("ship"),
    Step.REBASE: StepSpec("rebase"),
    Step.FIX_LANDING: StepSpec(
        "fix landing",
        agentic=True,
        writes=True,
        fixes=True,
        gets_test_commands=True,
        may_ask=True,
        rejection_intro="The change above could not land. A person in charge of this delivery says:",
    ),
    Step.LAND: StepSpec("land"),
}

AGENTIC = tuple(step for step, about in STEPS.items() if about.agentic)
WRITERS = tuple(step for step in AGENTIC if STEPS[step].writes)
FIXES = tuple(step for step in AGENTIC if STEPS[step].fixes)

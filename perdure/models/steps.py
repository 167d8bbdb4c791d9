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
class About:
    """
    shown      its name in the story of a delivery; empty where it is told by its number ("fix 1/4")
    agentic    carried out by an agent, in turns; all that follow are of such steps only
    writes     changes files, and is followed by a commit; the others only read
    fixes      begins from something that went wrong, and stays close to it
    noted      is given the repository's own notes (AGENTS.md)
    tested     is told the test commands
    asks       may put a question to a person: a requirement can be missing there; a reviewer judges by what was asked
    hears      is told what people say meanwhile; a classification takes one word of three, words would be lost there
    answer     the structure it ends with; None: in its own words
    sent_back  what stands before the words with which a person sent its result back
    """

    shown: str
    agentic: bool = False
    writes: bool = False
    fixes: bool = False
    noted: bool = False
    tested: bool = False
    asks: bool = False
    hears: bool = True
    answer: type[BaseModel] | None = None
    sent_back: str = ""


STEPS: dict[Step, About] = {
    Step.PREPARE: About("prepare"),
    Step.CLASSIFY: About("classify", agentic=True, hears=False, answer=Classification),
    Step.PLAN: About(
        "plan",
        agentic=True,
        noted=True,
        tested=True,
        asks=True,
        answer=Plan,
        sent_back="The plan above was shown to a person in charge of this delivery, who rejected it and says:",
    ),
    Step.DECOMPOSE: About(
        "decompose",
        agentic=True,
        noted=True,
        tested=True,
        asks=True,
        answer=Decomposition,
        sent_back="The items above were shown to a person in charge of this backlog, who rejected them and says:",
    ),
    Step.IMPLEMENT: About("build", agentic=True, writes=True, noted=True, tested=True, asks=True),
    Step.COMMIT: About("commit"),
    Step.DOCUMENT: About("docs", agentic=True, writes=True, asks=True),
    Step.RUN_TESTS: About("test"),
    Step.FIX_TESTS: About(
        "",
        agentic=True,
        writes=True,
        fixes=True,
        tested=True,
        asks=True,
        sent_back="Nothing can tell which of these failures were there before the change. A person in charge of this "
        "delivery has looked, wants it mended and says:",
    ),
    Step.REVIEW: About("review", agentic=True, noted=True, tested=True, answer=Review),
    Step.FIX_REVIEW: About(
        "",
        agentic=True,
        writes=True,
        fixes=True,
        tested=True,
        asks=True,
        sent_back="The change above was shown to a person in charge of this delivery, who wants it published "
        "otherwise and says:",
    ),
    Step.OPEN_PULL_REQUEST: About("ship"),
    Step.REBASE: About("rebase"),
    Step.FIX_LANDING: About(
        "fix landing",
        agentic=True,
        writes=True,
        fixes=True,
        tested=True,
        asks=True,
        sent_back="The change above could not land. A person in charge of this delivery says:",
    ),
    Step.LAND: About("land"),
}

AGENTIC = tuple(step for step, about in STEPS.items() if about.agentic)
WRITERS = tuple(step for step in AGENTIC if STEPS[step].writes)
FIXES = tuple(step for step in AGENTIC if STEPS[step].fixes)

"""A delivery that changes what the base's tests demand: what nothing asks for goes back, a person sees the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.models.delivery.decisions import Gate
from tests.e2e.test_gates import Person
from tests.e2e.test_tamper import FILES
from tests.e2e.test_verdicts import HERE, report_of
from tests.engine import TESTED, Engine, finished, git, make_target, pulls

ADDS, WORDS = "tests/test_calc.py::test_adds", "tests/test_calc.py::test_words"
REQUEST = "Let add take numbers only: words are\nrefused with a ValueError."
QUOTE = "words are refused with a ValueError"
STORY = f"""
[[line]]
step = "implement"
turn = 1
use = [{{ tool = "bash", input = {{ command = '''
printf 'def add(a, b):\\n    return int(a) + int(b) + 1\\n' > calc.py
sed -i 's/== 5/== 6/; s/    assert add("a", "b") == "ab"/    with pytest.raises(ValueError):\\n        add("a", "b")/; \
1i import pytest' tests/test_calc.py''' }} }}]
[[line]]
step = "implement"
say = "Refuse words"
[[line]]
step = "review"
contains = ["- {ADDS}"]
answer = {{ summary = "One thing.", issues = [], promises = [
  {{ test = "{WORDS}", quote = "{QUOTE}", reason = "asked for" }},
  {{ test = "{ADDS}", quote = "", reason = "not asked for" }},
] }}
[[line]]
step = "review"
contains = ["- {WORDS}"]
answer = {{ summary = "Fine.", issues = [], promises = [
  {{ test = "{WORDS}", quote = "{QUOTE}", reason = "asked for" }},
] }}
[[line]]
step = "fix_review"
turn = 1
contains = ["changed promise: {ADDS}"]
use = [{{ tool = "bash", input = {{ command = "sed -i 's/ + 1//; s/== 6/== 5/' calc.py tests/test_calc.py" }} }}]
[[line]]
step = "fix_review"
say = "Add as before"
"""


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_what_nothing_asks_for_is_sent_back_and_a_person_reads_of_the_rest_before_it_is_published(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git", FILES)
    async with Engine.open(tmp_path, STORY, ports=ports, env=HERE) as engine:
        engine.worker()
        person = Person(engine, tmp_path)
        submitted = await engine.submit(origin, request=REQUEST, gates=["pull_request"], **TESTED)
        asked = await person.asked(within_s=200)
        assert (asked.gate, "with 1 changed promise: test_words" in asked.summary) == (Gate.PULL_REQUEST, True), asked
        shown = await person("show", "calc-sub")
        assert "with 1 changed promise: test_words" in shown
        await person("approve", "calc-sub", "--of", asked.target)
        result = await finished(submitted, engine, timeout=200)
        assert result.status == "delivered", result
        assert [step.summary for step in result.steps if step.step == "review"] == ["1 blocker", "no issues"]
        line = "1/2 of main's own tests pass on the change · 1 new test fails without it · canaries caught"
        assert (result.tests.experiment, result.tests.promises, result.receipt.experiment) == (line, 1, line)
        tried = report_of(engine, result).experiment
        assert tried is not None
        assert [promise.name for promise in tried.changed_promises] == [WORDS]
        assert len(pulls(origin)) == 1
        body = git(origin, "show", "refs/pull/1/record:body.md")
        for words in (line, f"the request says “{QUOTE}”", '-     assert add("a", "b") == "ab"', "pytest.raises"):
            assert words in body, body
        assert "== 5" in git(origin, "show", "perdure/calc-sub:tests/test_calc.py")
        told = json.loads(await person("verify", "calc-sub", "--json"))
        claims = {one["claim"]: (one["mark"], one["said"]) for one in told["claims"]}
        assert {mark for mark, _ in claims.values()} == {"verified"}, claims
        assert claims["experiment again"][1] == f"{line}, 1 changed promise, as before"

"""Several attempts at one plan: the verdict chooses, whatever dies meanwhile, and one pull request comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.models.crash import CrashPoint
from perdure.models.result import DeliveryResult
from tests.lab import Lab, finished, git, heads, make_target, pulls

PLAN = """
[[line]]
step = "classify"
answer = { kind = "feature", reason = "new" }
[[line]]
step = "plan"
answer = { title = "Add sub", problem = "There is no sub.", solution = "Write it.", relevant_files = ["calc.py"], tasks = [{ title = "Write sub", details = "Beside add.", files = ["calc.py"] }], validation = ["sub(3, 2) is 1"] }
"""  # noqa: E501 - one line an answer, as in the screenplays
REVIEW = '[[line]]\nstep = "review"\nanswer = { summary = "Fine.", issues = [] }\n'
SUB = "printf '\\n\\ndef sub(a, b):\\n    return a - b\\n' >> calc.py"
TESTS = (
    "printf 'import unittest\\nfrom calc import sub\\n\\n\\nclass SubTest(unittest.TestCase):\\n"
    "    def test_sub(self):\\n        self.assertEqual(sub(3, 2), 1)\\n' > tests/test_sub.py"
)
RED = "sed -i 's/a + b/a - b/' calc.py"
LARGE = "printf '# one\\n# two\\n# three\\n# four\\n' >> calc.py"
NO_FIXES = "version = 1\n[setup]\ncommands = []\n[limits]\ntest_fixes = 0\n"


def attempt(contains: str, *commands: str, say: str = "Add sub") -> str:
    return f"""
[[line]]
step = "implement"
turn = 1
contains = {contains}
use = [{{ tool = "bash", input = {{ command = '''{" && ".join(commands)}''' }} }}]
[[line]]
step = "implement"
contains = {contains}
say = "{say}"
"""


def story(*attempts: tuple[str, ...]) -> str:
    made = [attempt(f'["This is attempt {number} of"]', *does) for number, does in enumerate(attempts, 1)]
    return PLAN + "".join(made) + REVIEW


def check(origin: Path, result: DeliveryResult, chosen: int) -> None:
    assert result.status == "delivered", (result.message, result.attempts)
    assert [one.number for one in result.attempts if one.chosen] == [chosen], result.attempts
    assert heads(origin).keys() == {"main", "perdure/calc-sub"}
    assert [pull["head"] for pull in pulls(origin)] == ["perdure/calc-sub"]
    assert git(origin, "log", "--format=%s", "main..perdure/calc-sub") == "feat: add sub"
    code = git(origin, "show", "perdure/calc-sub:calc.py")
    assert "def sub" in code
    assert "# four" not in code
    assert result.tests.status == "green"
    assert result.receipt.replies_paid_twice == 0


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_the_smallest_green_one_of_three_is_taken_and_becomes_one_pull_request(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Lab.open(tmp_path, story((SUB, RED), (SUB, TESTS, LARGE), (SUB, TESTS)), ports=ports) as lab:
        lab.worker()
        result = await finished(await lab.submit(origin, attempts=3, config=NO_FIXES), lab, 200)
        check(origin, result, 3)
        first, second, third = result.attempts
        assert (first.tests, second.tests, third.tests) == ("red", "green", "green")
        assert second.lines == third.lines + 4
        assert first.words.startswith("tests are red")
        calls = [call for call in lab.rehearsal.calls if call.status == 200]
        assert [call.step for call in calls].count("review") == 2, "of the two green ones, and not once more"
        paid = sum(one.cost_usd or 0 for one in result.attempts)
        assert result.usage.cost_usd is not None
        assert result.usage.cost_usd > paid > 0, "the plan, too"
        for one in result.attempts:
            assert (await lab.perdure.delivery(one.delivery).describe()).outcome in ("completed", "not_delivered")


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_the_others_begin_only_when_the_first_is_no_good_and_worker_deaths_change_nothing(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    own = attempt('["Add sub"]', SUB, RED)  # the delivery's own: nobody tells it of attempts
    others = story(("false",), (SUB, TESTS)).replace(REVIEW, "") + own + REVIEW
    async with Lab.open(tmp_path, others, ports=ports) as lab:
        lab.kept(PERDURE_CRASH_AT=f"{CrashPoint.AFTER_ATTEMPTS},during-tests")
        asked = {"attempts": 2, "after_red": True, "config": NO_FIXES}
        result = await finished(await lab.submit(origin, **asked), lab, 200)
        check(origin, result, 2)
        own_one, other = result.attempts
        assert (own_one.delivery, own_one.tests) == ("calc-sub", "red")
        assert (other.delivery, other.tests) == ("calc-sub/attempt-2", "green")
        assert result.receipt.worker_deaths >= 2

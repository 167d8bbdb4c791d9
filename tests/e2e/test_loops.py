"""Testing with retries, reviewing with retries, and their limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from perdure.models.errors import InvalidRequest
from tests.engine import CALC, FIXES, HAPPY, TESTED, Engine, check_shipped, finished, git, heads, make_target, pulls

pytestmark = pytest.mark.asyncio(loop_scope="module")

ODD = """
[[line]]
step = "implement"
turn = 2
contains = ["[idle]"]
use = [{ tool = "bash", input = { command = "echo nothing to do" } }]
[[line]]
step = "implement"
turn = 3
contains = ["[venv]"]
use = [{ tool = "bash", input = { command = ".venv/bin/python -m unittest -q" } }]
[[line]]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def happy(tmp_path_factory: pytest.TempPathFactory, ports: int) -> AsyncIterator[Engine]:
    """An engine with a worker for several tests: each has its own target and delivery, and its own words for it."""
    async with Engine.open(
        tmp_path_factory.mktemp("happy"), HAPPY.replace("[[line]]", ODD, 1), ports=ports, measured=True
    ) as engine:
        engine.worker()
        yield engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fixes(tmp_path_factory: pytest.TempPathFactory, ports: int) -> AsyncIterator[Engine]:
    """Likewise, where the first try is red and the review finds a blocker."""
    async with Engine.open(
        tmp_path_factory.mktemp("fixes"), FIXES.replace("[[line]]", ODD, 1), ports=ports, measured=True
    ) as engine:
        engine.worker()
        yield engine


@pytest.mark.always
async def test_red_tests_and_blockers_are_fixed_and_tested_again_before_anything_is_shipped(
    tmp_path: Path, fixes: Engine
) -> None:
    origin = make_target(tmp_path / "calc.git")
    result = await finished(await fixes.submit(origin), fixes)
    check_shipped(origin, fixes, result, {})
    order = [(step.step, step.attempt, step.status) for step in result.steps]
    assert order == [
        ("prepare", 1, "done"),
        ("classify", 1, "done"),
        ("plan", 1, "done"),
        ("implement", 1, "done"),
        ("commit", 1, "done"),
        ("run_tests", 1, "failed"),
        ("fix_tests", 1, "done"),
        ("commit", 1, "done"),
        ("run_tests", 2, "done"),
        ("review", 1, "failed"),
        ("fix_review", 1, "done"),
        ("commit", 1, "done"),
        ("run_tests", 3, "done"),
        ("review", 2, "done"),
        ("open_pull_request", 1, "done"),
    ]
    assert result.tests.tree_sha == git(origin, "rev-parse", f"{result.head_sha}^{{tree}}")
    assert (result.review.blockers, result.review.tech_debt) == (0, 2), "the reviewer's, and that no test was added"
    assert result.usage.cost_usd is not None
    assert result.usage.cost_usd > 0
    log = git(
        origin, "log", "--format=%s|%(trailers:key=Perdure-Delivery,valueonly,separator=)", "main..perdure/calc-sub"
    )
    assert log.splitlines() == [
        "fix: document sub|calc-sub",
        "fix: let add add again|calc-sub",
        "feat: add sub|calc-sub",
    ]
    body = git(origin, "show", "refs/pull/1/record:body.md")
    assert "There is no sub." in body
    assert "tech debt" in body
    assert "no test comes with the change" in body
    assert result.pull_request is not None
    assert result.pull_request.title == "feat: add sub"


@pytest.mark.always
async def test_red_tests_become_a_draft_where_that_is_asked_for_on_a_branch_of_the_owners_choice(
    tmp_path: Path, fixes: Engine
) -> None:
    origin = make_target(tmp_path / "calc.git")
    asked = '[delivery]\non_failure = "draft"\n[limits]\ntest_fixes = 0\n'
    asked += '[git]\nsign_off = true\nbranch = "robots/{kind}/{slug}/{id}"\n'
    config = (origin.with_name("calc.git-work") / "perdure.toml").read_text() + asked
    result = await finished(await fixes.submit(origin, "Add sub, please", id="drafted", config=config), fixes)
    assert (result.status, result.reason) == ("draft", "tests_red")
    assert result.branch == "robots/feature/add-sub-please/drafted"
    assert heads(origin)[result.branch] == result.head_sha
    signed = git(origin, "log", "-1", "--format=%(trailers:key=Signed-off-by,valueonly)%cn <%ce>", result.branch)
    by, committer = signed.split("\n")
    assert by == committer
    assert result.pull_request is not None
    assert result.pull_request.draft
    body = git(origin, "show", "refs/pull/1/record:body.md")
    assert "tests are red" in body.splitlines()[0]
    assert "1 of 1 fails: test_adds" in body


@pytest.mark.always
async def test_a_branch_that_is_the_base_is_refused_before_anything_is_paid_for(tmp_path: Path, fixes: Engine) -> None:
    origin = make_target(tmp_path / "calc.git")
    before, calls = heads(origin), fixes.model_calls()
    config = (origin.with_name("calc.git-work") / "perdure.toml").read_text() + '[git]\nbranch = "main"\n'
    with pytest.raises(InvalidRequest, match="main is the base branch: nobody delivers onto it"):
        await finished(await fixes.submit(origin, "Add sub onto main", id="onto-main", config=config), fixes)
    assert (heads(origin), fixes.model_calls()) == (before, calls)


async def test_an_untested_delivery_is_a_draft_that_says_so(tmp_path: Path, happy: Engine) -> None:
    origin = make_target(tmp_path / "calc.git")
    result = await finished(
        await happy.submit(origin, "Add sub, untested", id="untested", phases=["plan", "build", "ship"]), happy
    )
    assert result.status == "draft"
    assert result.pull_request is not None
    assert result.pull_request.draft
    first = git(origin, "show", "refs/pull/1/record:body.md").splitlines()[0]
    assert "not tested" in first
    assert "not reviewed" in first


async def test_a_delivery_that_changes_nothing_says_so(tmp_path: Path, happy: Engine) -> None:
    origin = make_target(tmp_path / "calc.git")
    result = await finished(await happy.submit(origin, "Add sub [idle]", id="idle", **TESTED), happy)
    assert result.status == "no_changes"
    assert pulls(origin) == []


async def test_setup_that_fails_ends_the_delivery_before_a_cent_is_spent(tmp_path: Path, happy: Engine) -> None:
    origin = make_target(tmp_path / "calc.git")
    asked = happy.model_calls()
    broken = 'version = 1\n[setup]\ncommands = ["echo preparing; no-such-installer --now"]\n'
    first = await finished(await happy.submit(origin, config=broken, id="setup-fails"), happy)
    unstartable = 'version = 1\n[setup]\ncommands = []\n[[test]]\nname = "unit"\ncommand = "no-such-runner -q"\n'
    second = await finished(await happy.submit(origin, config=unstartable, id="tests-cannot-start"), happy)
    for result, words in ((first, "no-such-installer"), (second, "no-such-runner")):
        assert (result.status, result.reason) == ("not_delivered", "setup_failed")
        assert words in result.message
        assert "fix:" in result.message
    assert happy.model_calls() == asked


async def test_files_setup_copies_are_there_for_tests_and_in_no_commit(tmp_path: Path, happy: Engine) -> None:
    origin = make_target(tmp_path / "calc.git")
    checkout = tmp_path / "checkout"
    git(tmp_path, "clone", "-q", str(origin), str(checkout))
    (checkout / ".env.test").write_text("ANSWER=42\n")
    (checkout / ".git/info/exclude").write_text(".env.test\n")
    config = (
        'version = 1\n[setup]\ncommands = ["echo made > made.txt && echo changed >> calc.py"]\ncopy = [".env.test"]\n'
        '[[test]]\nname = "env"\n'
        'command = "grep -q ANSWER=42 .env.test && grep -q made made.txt && ! grep changed calc.py"\n'
    )
    result = await finished(
        await happy.submit(origin, "Add sub, copies", id="copies", config=config, source=str(checkout), **TESTED), happy
    )
    assert result.status == "delivered", result.message
    changed = git(origin, "diff", "--name-only", "main", "perdure/copies").splitlines()
    assert changed == ["calc.py"]
    assert "changed" not in git(origin, "show", "perdure/copies:calc.py")


async def test_a_virtual_environment_that_setup_makes_serves_agent_and_tests_and_is_in_no_commit(
    tmp_path: Path, happy: Engine
) -> None:
    files = {
        **CALC,
        ".gitignore": ".venv/\n.env*\n*.env\n",
        "perdure.toml": 'version = 1\n[setup]\ncommands = ["python3 -m venv --without-pip .venv"]\n'
        '[[test]]\nname = "unit"\ncommand = ".venv/bin/python -m unittest -q"\n',
    }
    origin = make_target(tmp_path / "calc.git", files)
    result = await finished(await happy.submit(origin, "Add sub [venv]", id="venv", **TESTED), happy)
    assert result.status == "delivered", result.message
    assert git(origin, "diff", "--name-only", "main", "perdure/venv").splitlines() == ["calc.py"]
    log = happy.perdure.delivery("venv")
    page = await log.read_page("logs")
    assert "exit code 0" in page.text

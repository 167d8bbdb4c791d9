"""Reports of real deliveries: one that survived a death, with its host up and down, and one that nobody works on."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from perdure.models.delivery.result import DeliveryResult
from perdure.models.delivery.steps import Plan
from perdure.render.report.facts import DeliveryReport
from tests.cli.conftest import Cli
from tests.engine import FIXES, Engine, finished, git, make_target


async def perdure(engine: Engine, *args: str, code: int = 0) -> tuple[str, str]:
    """Standard output and error of the real command; in a thread, for the rehearsal answers from this one."""
    ran = await asyncio.to_thread(Cli(engine.home.root, engine.root, engine.env), *args)
    assert ran.code == code, ran
    return ran.out, ran.err


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_a_delivery_is_reported_whole_and_without_its_host_as_far_as_temporal_knows_it(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, FIXES, ports=ports, env={"PERDURE_CRASH_AT": "during-tool"}) as engine:
        engine.kept()
        result = await finished(await engine.submit(origin), engine, timeout=150)
        assert result.status == "delivered", result.message
        assert result.receipt.worker_deaths == 1

        page = tmp_path / "report.html"
        page.write_text("an older one")
        told, _ = await perdure(engine, "report", "calc-sub", "--html", str(page), "--json")
        whole = DeliveryReport.model_validate(json.loads(told))
        check_complete(whole, result)
        await check_artifacts(engine, result)
        html = page.read_text(encoding="utf-8")
        for words in ("Add sub", "a worker died", "sub has no docstring", "Let add add again", "redone after a death"):
            assert words in html, words
        assert "could not be read" not in html
        told, _ = await perdure(engine, "report", "@last")
        for words in ("calc-sub  delivered  Add sub", "1 worker death", "a worker died in", "No negative case"):
            assert words in told, words
        assert str(engine.home.root) not in told + html, "a place on the host"

        engine.end_workers()
        waiting = await engine.submit(origin, id="calc-waits")
        await check_without_a_host(engine, whole)
        await waiting.delivery.cancel()
        _, error = await perdure(engine, "report", "calc-subs", code=2)
        assert "did you mean calc-sub?" in error


def check_complete(report: DeliveryReport, result: DeliveryResult) -> None:
    assert report.unread == ()
    assert (report.status, report.steps, report.usage) == (result.status, result.steps, result.usage)
    assert (report.tests, report.review, report.receipt) == (result.tests, result.review, result.receipt)
    assert report.plan is not None
    assert report.plan.title == "Add sub"
    assert report.test_report is not None
    assert report.test_report.commit == result.head_sha
    assert report.reviewed is not None
    assert [issue.title for issue in report.reviewed.issues] == ["No negative case"]
    assert len(report.turns) == sum(record.turns for record in result.steps)
    assert sum(turn.cost_usd or 0 for turn in report.turns) == pytest.approx(result.usage.cost_usd)
    (death,) = report.deaths
    (redone,) = [turn for turn in report.turns if turn.died]
    assert (death.activity, redone.tries) == (redone.step, 2)
    assert report.started <= redone.started <= death.at <= (report.ended or report.taken)
    assert all(turn.transcript for turn in report.turns)
    edited = next(turn for turn in report.turns if (turn.step, turn.turn) == ("fix_tests", 2))
    assert "▸ edit" in edited.transcript
    assert "▸ read" not in edited.transcript, "what another turn did"


async def check_artifacts(engine: Engine, result: DeliveryResult) -> None:
    delivery = engine.perdure.delivery(result.delivery_id)
    data = await delivery.artifact(result.plan or "")
    assert Plan.model_validate_json(data).title == "Add sub"
    (vault,) = engine.home.vaults.glob("*.git")
    contract = git(vault, "for-each-ref", "--format=%(refname)", "refs/artifacts/calc-sub/").splitlines()[0]
    sha256 = contract.rpartition("/")[2]
    kept = subprocess.run(["git", "cat-file", "blob", contract], cwd=vault, capture_output=True, check=True, timeout=30)
    assert await delivery.artifact(sha256) == kept.stdout


async def check_without_a_host(engine: Engine, whole: DeliveryReport) -> None:
    page = engine.root / "down.html"
    told, error = await perdure(engine, "report", "calc-sub", "--html", str(page), "--json")
    assert "What could not be read" in page.read_text(encoding="utf-8")
    assert "the plan, the test report, the review" in error
    assert "does not answer" in error
    left = DeliveryReport.model_validate(json.loads(told))
    assert (left.plan, left.test_report, left.reviewed) == (None, None, None)
    assert (left.steps, left.deaths, left.usage) == (whole.steps, whole.deaths, whole.usage)
    assert [turn.cost_usd for turn in left.turns] == [turn.cost_usd for turn in whole.turns]
    told, error = await perdure(engine, "report", "calc-waits", "--html", "-")
    assert told.startswith("<!doctype html>")
    assert "still running when this was read" in told
    assert "no worker answers" in error

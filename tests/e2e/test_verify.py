"""`perdure verify` of a delivery that has seen a death: every claim holds, and each lie about it is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure.cli.look.verifying import check_receipt
from perdure.cli.session import resolve_id
from perdure.models.delivery.result import DeliveryResult
from perdure.models.errors import BadInput
from tests.cli.conftest import Cli
from tests.engine import HAPPY, Engine, check_shipped, finished, git, heads, make_target, pulls
from tests.repositories import unpack

CLAIMS = [
    *("ended as it says", "one pull request", "tested tree", "experiment"),
    *("begins at the base", "commits", "checkpoints"),
    *(
        "worker deaths",
        "turns redone",
        "replies paid twice",
        "replies cut",
        "cost",
        "history replays",
        "tests run again",
        "experiment again",
    ),
]


@dataclass(frozen=True)
class Said:
    """What one `perdure verify` said: claim → (mark, words)."""

    code: int
    claims: dict[str, tuple[str, str]]

    def wrong(self) -> set[str]:
        return {claim for claim, (mark, _) in self.claims.items() if mark == "contradicted"}

    def words(self, claim: str) -> str:
        return self.claims[claim][1]


async def ask(engine: Engine, *options: str) -> tuple[int, str]:
    """In a thread, for the rehearsal answers from this one."""
    ran = await asyncio.to_thread(Cli(engine.home.root, engine.root, engine.env), "verify", "calc-sub", *options)
    assert ran.code in (0, 1), ran.err
    return ran.code, ran.out


async def verify(engine: Engine, *options: str) -> Said:
    code, out = await ask(engine, "--json", *(options or ("--no-tests",)))
    told = json.loads(out)
    assert told["holds"] == (code == 0)
    return Said(code, {claim["claim"]: (claim["mark"], claim["said"]) for claim in told["claims"]})


@contextmanager
def changed(path: Path, text: str) -> Iterator[None]:
    """A file as somebody would like it to be."""
    before = path.read_bytes()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_bytes(before)


@contextmanager
def moved(repository: Path, ref: str, to: str) -> Iterator[None]:
    """A ref somewhere else, or nowhere (`to` empty)."""
    before = git(repository, "for-each-ref", "--format=%(objectname)", ref)
    git(repository, *(("update-ref", ref, to) if to else ("update-ref", "-d", ref)))
    try:
        yield
    finally:
        git(repository, *(("update-ref", ref, before) if before else ("update-ref", "-d", ref)))


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_every_line_of_a_receipt_is_derived_again_and_each_lie_about_it_is_named(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports, env={"PERDURE_CRASH_AT": "during-tool"}) as engine:
        submitted = await engine.submit(origin)
        with pytest.raises(BadInput, match="is running: there is no receipt yet"):
            await anext(check_receipt(engine.client, submitted.delivery, tests=False, say=lambda _: None))
        engine.kept()
        result = await finished(submitted, engine, timeout=100)
        check_shipped(origin, engine, result, {})
        assert (result.receipt.worker_deaths, result.receipt.turns_redone) == (1, 1)
        calls = engine.model_calls()

        code, out = await ask(engine)
        lines = [line for line in out.splitlines() if line[:1] in "✓✗?" and line]
        assert [line[2:22].strip() for line in lines] == CLAIMS, out
        assert all(line.startswith("✓ ") for line in lines), out
        assert (code, out.splitlines()[-1]) == (0, "15 claims of 15 verified")
        assert engine.model_calls() == calls, "verifying asks no model"
        assert heads(origin).keys() == {"main", result.branch}, "and publishes nothing"
        assert len(pulls(origin)) == 1
        assert await resolve_id(engine.perdure, "@last") == "calc-sub", "what verifying started was not delivered"

        await lies_in_ledger_and_git(engine, origin, result)
        await gone_from_git(engine, origin, result)

        engine.end_workers()
        alone = await verify(engine)
        assert alone.code == 0, "what cannot be checked is not contradicted"
        known = {claim for claim, (mark, _) in alone.claims.items() if mark == "verified"}
        assert known == {"ended as it says", "history replays"}
        assert "does not answer" in alone.words("cost")


async def lies_in_ledger_and_git(engine: Engine, origin: Path, result: DeliveryResult) -> None:
    directory = engine.home.workspace("calc-sub")
    spend, journal = directory / "spend.jsonl", directory / "journal.jsonl"
    before = spend.read_text()
    lines = [json.loads(line) for line in before.splitlines()]
    first = next(line for line in lines if "settled" in line)
    intent = next(line for line in lines if line.get("intent") == first["settled"])

    cheaper = before.replace(f'"cost_usd": {first["usage"]["cost_usd"]}', '"cost_usd": 0.000001', 1)
    assert cheaper != before
    twice = [{**intent, "intent": "again"}, {**first, "settled": "again"}]
    with changed(spend, cheaper + "".join(json.dumps(line) + "\n" for line in twice)), changed(journal, ""):
        said = await lies_in_git(engine, origin, result)
    assert said.wrong() - IN_GIT == {"cost", "replies paid twice", "worker deaths", "turns redone"}
    assert "the result says $" in said.words("cost")
    assert said.words("replies paid twice") == "the receipt says 0, the spend log 1"
    assert "the receipt says 1, the journal 0" in said.words("worker deaths")
    assert "history tells of a death that the journal has not" in said.words("worker deaths")


IN_GIT = {"tested tree", "experiment", "one pull request", "checkpoints"}


async def lies_in_git(engine: Engine, origin: Path, result: DeliveryResult) -> Said:
    """The branch moved, a second pull request by hand, the last checkpoint kept by nothing, another report."""
    (vault,) = engine.home.vaults.glob("*.git")
    head = str(result.head_sha)
    other = git(origin, "commit-tree", "-p", head, "-m", "by hand", "main^{tree}")
    record = json.loads(git(origin, "show", "refs/pull/1/record:pull.json"))
    blob = git_in(origin, json.dumps({**record, "number": 2, "delivery": ""}), "hash-object", "-w", "--stdin")
    second = git(origin, "commit-tree", "-m", "second", git_in(origin, f"100644 blob {blob}\tpull.json\n", "mktree"))
    report = str(result.tests.report).removeprefix("artifact:sha256:")
    green = git_in(vault, '{"commit": "", "tree": "", "commands": []}', "hash-object", "-w", "--stdin")
    with (
        moved(origin, f"refs/heads/{result.branch}", other),
        moved(origin, "refs/pull/2/record", second),
        moved(origin, "refs/pull/2/head", head),
        moved(vault, f"refs/perdure/calc-sub/{result.run_id}", ""),
        moved(vault, f"refs/artifacts/calc-sub/{report}", green),
    ):
        said = await verify(engine, "--json")
    assert (said.code, said.wrong() & IN_GIT) == (1, IN_GIT)
    assert f"is at {other[:7]} on the remote, the tests ran on {head[:7]}" in said.words("tested tree")
    assert "it is not what its hash says" in said.words("tested tree")
    assert said.words("one pull request") == "#2 is open for perdure/calc-sub, too"
    assert "no ref keeps the last one" in said.words("checkpoints")
    assert said.claims["tests run again"] == ("unknown", f"perdure/calc-sub is at {other[:7]} on the remote now")
    return said


async def gone_from_git(engine: Engine, origin: Path, result: DeliveryResult) -> None:
    """The branch deleted, which is nobody's lie; the pull request gone; one checkpoint missing."""
    (vault,) = engine.home.vaults.glob("*.git")
    dropped = git(vault, "rev-parse", f"{result.checkpoint}~3")
    unpack(vault)
    loose = vault / "objects" / dropped[:2] / dropped[2:]
    loose.rename(vault / "dropped")
    with moved(origin, f"refs/heads/{result.branch}", ""), moved(origin, "refs/pull/1/record", ""):
        said = await verify(engine, "--json")
    (vault / "dropped").rename(loose)
    assert said.wrong() == {"one pull request", "checkpoints"}
    assert said.words("one pull request") == "#1 is not there any more"
    assert said.words("checkpoints").startswith("a hole: ")
    assert "is deleted on the remote" in said.words("tested tree")
    assert said.claims["tests run again"][0] == "unknown"


def git_in(repository: Path, text: str, *args: str) -> str:
    """The tester's git, given something to read."""
    path = repository.with_name("given")
    path.write_text(text)
    command = " ".join(args)
    return git(repository, "-c", f"alias.given=!git {command} < '{path}'", "given")

"""The truths at the end, whatever happened: read from git, the model twin's record and Temporal's history.

Nothing here asks the engine what it did: not its journal, not its spend log. Its result and receipt are compared with
what was observed, at the end of the list.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.models.delivery.result import DeliveryResult
from perdure.rehearsal.record import RecordedCall
from tests.chaos.faults import DEADLY
from tests.chaos.stories import CUTS
from tests.chaos.world import PATIENCE_S, World, answered
from tests.engine import git, heads, pulls

REWINDS = ("reset",)
"""A rewind samples anew: what is asked again after one is asked on purpose."""

SETTLE_S = 10.0
"""Between the last byte of a reply and the moment at which it must be written down, on a very busy machine."""


class Wrong(list[str]):
    """The list of what is not as it must be, in words."""

    def unless(self, holds: object, words: str) -> None:
        if not holds:
            self.append(words)


async def judge(world: World, result: DeliveryResult, histories: list[dict[str, Any]]) -> list[str]:
    """All that is wrong; empty when nothing is."""
    wrong = Wrong()
    wrong.unless(result.status == "delivered", f"{result.status}, {result.reason}: {result.message[:500]}")
    if result.status == "delivered":
        _git(world, result, wrong)
        _tested(world, histories, wrong)
    money(world, wrong)
    _receipt(world, result, wrong)
    return list(wrong)


def _git(world: World, result: DeliveryResult, wrong: Wrong) -> None:
    """One branch, one pull request, each commit once, nothing but the change that was asked for."""
    origin, story = world.origin, world.story
    assert story is not None
    branch = f"perdure/{world.id}"
    found = {name: sha for name, sha in heads(origin).items() if name != "perdure-artifacts"}
    wrong.unless(found.keys() == {"main", branch}, f"branches: {sorted(found)}")
    wrong.unless(found.get("main") == world.base, f"main moved to {found.get('main')}")
    opened = _opened(world)
    wrong.unless(opened == [branch], f"pull requests: {opened}")
    if branch not in found:
        return
    wrong.unless(result.head_sha == found[branch], f"head is {found[branch]}, the result says {result.head_sha}")
    trailers = "--format=%(trailers:key=Perdure-Step,valueonly,separator=%x2C)"
    steps = tuple(
        line.split("/")[0].strip() for line in git(origin, "log", "--reverse", trailers, f"main..{branch}").split()
    )
    wrong.unless(len(steps) == len(story.steps), f"commits of {steps}, expected {story.steps}")
    parents = git(origin, "rev-list", "--parents", f"main..{branch}").splitlines()
    wrong.unless(all(len(line.split()) == 2 for line in parents), "the branch is not one line of commits")
    changed = git(origin, "diff", "--name-only", "main", branch).split()
    wrong.unless(sorted(changed) == sorted(story.changed), f"changed: {changed}")
    for name, text in story.changed.items():
        blob = subprocess.run(
            ["git", "show", f"{branch}:{name}"], cwd=origin, capture_output=True, text=True, timeout=60
        )
        wrong.unless(blob.stdout == text, f"{name} is\n{blob.stdout}")
    for repository in (origin, *world.engine.home.vaults.glob("*.git")):
        try:
            git(repository, "fsck", "--strict", "--connectivity-only")
        except AssertionError as error:
            wrong.append(f"fsck of {repository.name}: {error}")
    green = world.root / "green"
    git(world.root, "clone", "-q", "--branch", branch, str(origin), str(green))
    tests = [sys.executable, "-B", "-m", "unittest", "-q"]
    ran = subprocess.run(tests, cwd=green, capture_output=True, text=True, timeout=PATIENCE_S)
    wrong.unless(ran.returncode == 0, f"the shipped tree's own tests: {ran.stderr[-500:]}")


def _opened(world: World) -> list[str]:
    if world.github is None:
        return [pull["head"] for pull in pulls(world.origin)]
    return [pull["head"]["ref"] for pull in world.github.pulls("me/calc")]


def _tested(world: World, histories: list[dict[str, Any]], wrong: Wrong) -> None:
    """The tree that the last verdict before the pull request is about is the tree that was shipped."""
    shipped = git(world.origin, "rev-parse", f"perdure/{world.id}^{{tree}}")
    verdicts = [ended for history in histories for ended in completed(history, "run_tests")]
    wrong.unless(verdicts and verdicts[-1].get("tree") == shipped, f"shipped {shipped}, tested {verdicts[-1:]}")
    wrong.unless(verdicts and verdicts[-1].get("status") == "green", f"the last verdict: {verdicts[-1:]}")


def completed(history: dict[str, Any], activity: str) -> list[dict[str, Any]]:
    """Results of an activity's completed executions, in order, out of a run's history as JSON."""
    scheduled, found = {}, []
    for event in history["events"]:
        if attributes := event.get("activityTaskScheduledEventAttributes"):
            scheduled[event["eventId"]] = attributes["activityType"]["name"]
        attributes = event.get("activityTaskCompletedEventAttributes")
        if attributes and scheduled[attributes["scheduledEventId"]] == activity:
            [payload] = attributes["result"]["payloads"]
            found.append(json.loads(base64.b64decode(payload["data"])))
    return found


@dataclass
class Bought:
    """A request that was asked again although a reply to it had been begun: both were paid for."""

    first: RecordedCall
    again: RecordedCall


def bought_again(calls: list[RecordedCall]) -> list[Bought]:
    """By the request's bytes, as they arrived at the twin; each with the one before it."""
    last: dict[str, RecordedCall] = {}
    found = []
    for call in calls:
        if call.usage is None or not call.body:  # refused, or a fault that sent no reply: nobody pays for that
            continue
        body = hashlib.sha256(json.dumps(call.body, sort_keys=True).encode()).hexdigest()
        if body in last:
            found.append(Bought(last[body], call))
        last[body] = call
    return found


def money(world: World, wrong: Wrong) -> None:
    """Every request that was paid twice has a fault that explains it, and each fault explains one in each run of it."""
    calls = world.engine.rehearsal.calls if world.engine.rehearsal else []
    wrong.unless(world.engine.rehearsal and world.engine.rehearsal.prefix_breaks == 0, "a conversation was rewritten")
    for pair in bought_again(calls):
        if pair.first.outcome in CUTS or _rewound(world, pair):
            continue
        place = f"{pair.first.step} turn {pair.first.turn}, calls {pair.first.number} and {pair.again.number}"
        wrong.unless(not _used(calls, pair), f"a reply that was acted on was bought again: {place}")
        wrong.unless(_interrupted(world, pair), f"a reply was bought again and nothing had interrupted it: {place}")


def _rewound(world: World, pair: Bought) -> bool:
    return any(
        struck.kind in REWINDS
        and not struck.detail.startswith("missed")
        and pair.first.began_at - 1 <= struck.ended
        and struck.began <= pair.again.began_at
        for struck in world.struck
    )


def _used(calls: list[RecordedCall], pair: Bought) -> bool:
    """True when its reply had come back in another request before: it had arrived whole, and its tools had run."""
    asked = _without_marks(pair.first.body.get("messages", []))
    between = (call for call in calls if pair.first.number < call.number < pair.again.number)
    said = (_without_marks(call.body.get("messages", [])) for call in between)
    return any(len(messages) > len(asked) and messages[: len(asked)] == asked for messages in said)


def _without_marks(messages: Any) -> Any:
    """A conversation without its cache marks, which move as it grows."""
    if isinstance(messages, list):
        return [_without_marks(one) for one in messages]
    if isinstance(messages, dict):
        return {key: _without_marks(value) for key, value in messages.items() if key != "cache_control"}
    return messages


def _interrupted(world: World, pair: Bought) -> bool:
    """True when a fault struck between the request and the moment at which its reply must have been kept."""
    kept = max(pair.first.ended_at, pair.first.began_at) + SETTLE_S
    return any(
        pair.first.began_at - SETTLE_S <= struck.ended and struck.began <= kept and struck.kind != "forge"
        for struck in world.struck
    )


def _receipt(world: World, result: DeliveryResult, wrong: Wrong) -> None:
    """The deaths the delivery says it survived, beside what was seen from outside."""
    receipt = result.receipt
    deaths = sum(struck.kind in DEADLY for struck in world.struck)
    wrong.unless(receipt.worker_deaths <= deaths, f"{receipt.worker_deaths} deaths on the receipt, {deaths} struck")
    wrong.unless(receipt.turns_redone <= len(world.struck), f"{receipt.turns_redone} turns redone")
    calls = world.engine.rehearsal.calls if world.engine.rehearsal else []
    paid = [call for call in calls if call.usage is not None]
    cut = [call for call in paid if call.outcome in CUTS or call.dropped]
    again = len(bought_again(calls))
    wrong.unless(receipt.replies_paid_twice <= again, f"{receipt.replies_paid_twice} paid twice, {again} seen")
    may = len(cut) + len(world.struck)
    wrong.unless(receipt.replies_cut <= may, f"{receipt.replies_cut} replies cut, at most {may} seen")
    wrong.unless(receipt.replies_cut >= len(cut), f"{receipt.replies_cut} replies cut, {len(cut)} seen")
    spent = sum(call.usage["output_tokens"] for call in paid if call.usage)
    whole = sorted((call.usage["output_tokens"] for call in paid if call not in cut and call.usage), reverse=True)
    lost = sum(whole[: len(world.struck)])  # each fault may have hit one between its last byte and its settlement
    told = result.usage.output_tokens
    wrong.unless(sum(whole) - lost <= told <= spent, f"{told} output tokens told, {sum(whole)} to {spent} seen")


async def histories(world: World) -> list[dict[str, Any]]:
    """Every run of the delivery, the oldest first, as the server tells it."""

    async def read() -> list[dict[str, Any]]:
        runs = [run async for run in world.engine.client.list_workflows(f"WorkflowId = '{world.id}'")]
        found = []
        for run in sorted(runs, key=lambda run: run.start_time):
            handle = world.engine.client.get_workflow_handle(world.id, run_id=run.run_id)
            found.append((await handle.fetch_history()).to_json_dict())
        return found

    return await answered(read)


def target(path: Path) -> str:
    """The state of a person's own checkout: nothing may have touched it."""
    return git(path, "status", "--porcelain") + git(path, "rev-parse", "HEAD")

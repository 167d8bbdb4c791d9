"""A request is refused alike whoever sends it: a plain Temporal client, ours, and the command line; and whatever is
accepted fits the server's search attributes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from backlog_fixtures import Branch, night
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer

from perdure.cli.backlog.start import check_backlog
from perdure.cli.commands.backlog import BacklogOptions
from perdure.cli.commands.start import DeliverOptions
from perdure.cli.request.validation import check_request
from perdure.client import Perdure
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.ids import MORE_ATTRIBUTES
from perdure.models.limits import KEYWORD_BYTES, PLACE_CHARS, TASK_QUEUE, TOKENS_MOST
from perdure.models.phases import Phase
from perdure.models.rules import admission
from perdure.models.rules.inbox import NotCounted
from perdure.plugin import perdure_plugin
from tests.deliveries import PLANNED, Script, playing
from tests.waiting import patient
from workflows import WORKFLOWS, Delivery

KEY = {"ANTHROPIC_API_KEY": "not-a-key"}
CYRILLIC = tuple(f"{number}{'ж' * 97}" for number in range(4))
LATIN = tuple(f"{number:0>100}" for number in range(21))


@dataclass(frozen=True)
class Refused:
    """A request with these fields, and what is said of it. `options`: the same at the command line, where it can be."""

    reason: str
    fields: dict[str, Any]
    options: dict[str, Any] | None = field(default=None)


REFUSED = [
    Refused(
        "gates: nothing would wait at plan: phase plan is not selected",
        {"phases": ["build", "test", "ship"], "gates": ["plan"]},
        {"phases": "build,test,ship", "gate": ["plan"]},
    ),
    Refused(
        "gates: nothing would wait at pull_request: phase ship is not selected",
        {"phases": ["plan"], "gates": ["plan", "pull_request"]},
        {"phases": "plan", "gate": ["plan,pull_request"]},
    ),
    Refused("phases: no phase is selected", {"phases": []}, {"phases": ","}),
    Refused("phases: test needs something to work on", {"phases": ["test"]}, {"phases": "test"}),
    Refused("phases: land cannot be selected", {"phases": ["build", "land"]}, {"phases": "build,land"}),
    Refused("labels: take 2345 bytes", {"labels": CYRILLIC}, {"label": list(CYRILLIC)}),
    Refused("labels: take 2164 bytes", {"labels": LATIN}, {"label": list(LATIN)}),
    Refused("labels: ' ' cannot be a label", {"labels": [" "]}),
    Refused("labels: 'a\\nb' cannot be a label", {"labels": ["a\nb"]}, {"label": ["a\nb"]}),
    Refused("plan: phase plan makes one", {"phases": ["plan"], "plan": "1. x"}, {"phases": "plan", "plan": "1. x"}),
    Refused("plan: is blank", {"plan": " \n"}, {"plan": " \n"}),
    Refused(f"tokens: at most {TOKENS_MOST}", {"tokens": 2**63}, {"tokens": 2**63}),
    Refused("budget_usd: is 0.005, the least is 0.01", {"budget_usd": 0.005}, {"budget": 0.005}),
    Refused("repository: has control characters: '/srv/\\x00calc'", {"repository": "/srv/\0calc"}),
    Refused("repository: is blank", {"repository": " "}),
    Refused("repository: is 4001 bytes", {"repository": "/" + "ж" * 2000}),
    Refused("base: has control characters", {"base": "ma\0in"}, {"base": "ma\0in"}),
    Refused("branch: has control characters", {"branch": "a\nb"}, {"branch": "a\nb"}),
    Refused("model: has control characters", {"model": "a\0"}, {"model": "a\0"}),
    Refused("agent: has control characters", {"agent": "a\0"}, {"agent": "a\0"}),
    Refused("source: has a NUL character", {"source": "/srv/\0"}),
]
BACKLOGS = [
    Refused("labels: take 2164 bytes", {"labels": LATIN}, {"label": list(LATIN)}),
    Refused("repository: has control characters", {"repository": "/srv/\0calc"}),
    Refused("items.1.labels: take", {"labels": LATIN[:10], "items": [{"id": "a"}, {"id": "b", "labels": LATIN[10:]}]}),
]


def named(row: Refused) -> str:
    return row.reason.partition(" '")[0]


async def refusal(client: Client, workflow: str, raw: Any, id: str) -> str:
    """What a plain Temporal client is told."""
    started = await client.start_workflow(workflow, raw, id=id, task_queue=TASK_QUEUE)
    with pytest.raises(WorkflowFailureError) as failed:
        await started.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == "InvalidRequest"
    return failed.value.cause.message.removeprefix("InvalidRequest: ")


@pytest.mark.parametrize("row", REFUSED, ids=named)
async def test_a_delivery_is_refused_alike_whoever_submits_it(client: Client, row: Refused, fresh: str) -> None:
    raw, script = {"repository": "/srv/calc", "request": "Add sub", **row.fields}, Script()
    async with playing(client, script):
        assert (await refusal(client, "Delivery", raw, fresh)).startswith(row.reason)
    assert not script.preparing
    with pytest.raises(InvalidRequest) as ours:
        await Perdure(client).submit(raw, id=f"{fresh}-2")
    assert ours.value.what.startswith(row.reason)
    with pytest.raises(InvalidRequest):
        await Perdure(client).schedules.add(DeliveryRequest.model_validate(raw), fresh, datetime.now(UTC), "now")
    if row.options is not None:
        with pytest.raises(BadInput) as typed:
            await asyncio.to_thread(check_request, DeliverOptions(text="Add sub", **row.options), KEY)
        assert typed.value.where
        assert typed.value.fix


async def test_an_id_is_refused_where_its_own_or_those_of_what_it_starts_do_not_fit_a_sql_database(
    client: Client, fresh: str
) -> None:
    raw: dict[str, Any] = {"repository": "/srv/calc", "request": "Add sub"}
    items = {"repository": "/srv/calc", "items": [{"id": "a", "request": "x"}]}
    id, perdure = fresh.ljust(178, "𝔞"), Perdure(client)
    reason, of_backlog, of_schedule = (f"id: has 178 characters, at most {most} fit" for most in (177, 136, 156))
    async with playing(client, Script()):
        assert await refusal(client, "Delivery", raw, id) == reason
        assert await refusal(client, "Backlog", items, id) == of_backlog
    for expected, submitted in (
        (reason, perdure.submit(raw, id=id)),
        (of_backlog, perdure.submit_backlog(items, id)),
        (of_schedule, perdure.schedules.add(DeliveryRequest.model_validate(raw), id, datetime.now(UTC), "now")),
    ):
        with pytest.raises(InvalidRequest) as ours:
            await submitted
        assert ours.value.what == expected
    assert not admission.id_refusal(id[:177])


@pytest.mark.parametrize("row", BACKLOGS, ids=named)
async def test_a_backlog_is_refused_alike_whoever_submits_it(
    client: Client, row: Refused, fresh: str, tmp_path: Path
) -> None:
    raw = {**night(*row.fields.get("items", ({"id": "a"},))), **row.fields}
    raw["items"] = [{"request": "x", **item} for item in raw["items"]]
    async with playing(client, Script()):
        assert (await refusal(client, "Backlog", raw, fresh)).startswith(row.reason)
    with pytest.raises(InvalidRequest) as ours:
        await Perdure(client).submit_backlog(raw, f"{fresh}-2")
    assert ours.value.what.startswith(row.reason)
    if row.options is not None:
        file = tmp_path / "night.yaml"
        file.write_text("version: 1\nitems:\n  - {id: api, request: Add it}\n")
        with pytest.raises(BadInput):
            await asyncio.to_thread(check_backlog, BacklogOptions(file=str(file), **row.options), KEY)


async def test_an_accepted_request_of_before_is_not_refused_when_its_history_is_replayed(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an earlier release has accepted it: nothing in its history says that it was asked."""
    monkeypatch.setattr("workflows.endings.delivery_refusal", lambda request: "")
    raw = {**PLANNED, "labels": CYRILLIC, "gates": ["pull_request"]}
    async with playing(client, Script(Phase.PLAN)):
        handle = await client.start_workflow("Delivery", raw, id=fresh, task_queue=TASK_QUEUE)
        assert (await handle.result())["status"] == "completed"
    monkeypatch.undo()
    history = await handle.fetch_history()
    await Replayer(workflows=[Delivery], plugins=[perdure_plugin()]).replay_workflow(history)


async def test_a_refused_delivery_replays_as_refused(client: Client, fresh: str) -> None:
    async with playing(client, Script()):
        await refusal(client, "Delivery", {**PLANNED, "gates": ["pull_request"]}, fresh)
    history = await client.get_workflow_handle(fresh).fetch_history()
    await Replayer(workflows=WORKFLOWS, plugins=[perdure_plugin()]).replay_workflow(history)


async def test_the_longest_names_and_labels_of_an_issue_fit_the_search_attributes(client: Client, fresh: str) -> None:
    repository = "/" + "ж" * (PLACE_CHARS // 2 - 1)
    script = Script(
        Phase.PLAN,
        attributes=True,
        extra_attributes=tuple(MORE_ATTRIBUTES),
        labels=(*LATIN, *CYRILLIC, *map(str, range(100))),
        branch="ж" * 255,
    )
    async with playing(client, script):
        handle = await client.start_workflow(
            "Delivery", {**PLANNED, "repository": repository}, id=fresh, task_queue=TASK_QUEUE
        )
        async with asyncio.timeout(patient(40)):
            assert (await handle.result())["repository"] == repository
    listed = {pair.key.name: pair.value for pair in (await handle.describe()).typed_search_attributes}
    assert listed["PerdureRepository"] == admission.fit_keyword(repository)
    assert len(listed["PerdureLabels"]) > 18
    assert all(len(str(text).encode()) <= KEYWORD_BYTES for name, text in listed.items() if name != "PerdureLabels")


async def test_labels_that_just_fit_are_accepted(client: Client, fresh: str) -> None:
    labels = tuple(text[3:] for text in LATIN[:17])
    assert admission.labels_refusal(labels) == ""
    assert admission.labels_refusal((*labels, "x" * 97, "y" * 97)).endswith("and each label 3 more")
    script = Script(Phase.PLAN, attributes=True, extra_attributes=tuple(MORE_ATTRIBUTES), labels=labels)
    async with playing(client, script):
        handle = await client.start_workflow("Delivery", {**PLANNED, "labels": labels}, id=fresh, task_queue=TASK_QUEUE)
        async with asyncio.timeout(patient(40)):
            assert (await handle.result())["status"] == "completed"
    listed = {pair.key.name: pair.value for pair in (await handle.describe()).typed_search_attributes}
    assert tuple(listed["PerdureLabels"]) == labels


async def test_a_retry_is_refused_for_amounts_that_no_request_may_have(client: Client, fresh: str) -> None:
    """All else of it is as it was admitted; and its origin is asked for before anything is done."""
    resume = {"run_id": "r", "state": {}}
    script = Script()
    async with playing(client, script):
        for number, (field, value) in enumerate([("budget_usd", 0.005), ("tokens", 2**62)]):
            raw = {**PLANNED, field: value, "resume": resume}
            assert (await refusal(client, "Delivery", raw, f"{fresh}-{number}")).startswith(f"{field}: ")
        assert not script.preparing


async def test_an_items_labels_count_together_with_its_backlogs_when_it_is_added_or_replaced(
    client: Client, fresh: str
) -> None:
    branch = Branch(api="a", page="p")
    branch.holding = {"api": asyncio.Event()}
    async with playing(client, branch):
        request = {**night({"id": "api"}, {"id": "page", "depends_on": ["api"]}), "labels": LATIN[:10]}
        await Perdure(client).submit_backlog(request, fresh)
        backlog = Perdure(client).backlog(fresh)
        for change in (
            backlog.add({"id": "docs", "request": "x", "depends_on": ["api"], "labels": LATIN[10:]}),
            backlog.edit({"id": "page", "request": "x", "depends_on": ["api"], "labels": LATIN[10:]}),
        ):
            with pytest.raises(NotCounted, match=r"item\.labels: take 2164 bytes together"):
                await change
        await backlog.add({"id": "docs", "request": "x", "depends_on": ["api"], "labels": LATIN[10:12]})
        await backlog.cancel()

"""Workflows share nothing between runs, get one plugin of ours, and have 5 s for a decision."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
from datetime import date, timedelta, tzinfo
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RetryPolicy, SearchAttributeKey
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DefaultFailureConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

import workflows
from perdure.client import Perdure
from perdure.client import budgets as treasury
from perdure.converter import Understanding, perdure_data_converter
from perdure.models.base import UnreadableValue
from perdure.models.budget.treasury import TREASURY, BudgetRule
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.limits import WORKFLOW_TASK
from perdure.plugin import _runner
from tests.deliveries import WHOLE, Script, events, playing, reset, task_timeout

MODULES = ["workflows", *(found.name for found in pkgutil.iter_modules(workflows.__path__, "workflows."))]

IMPORTED = {
    *("__future__", "collections.abc", "contextlib", "dataclasses", "difflib", "types", "typing"),
    *("asyncio", "datetime", "perdure.models", "perdure.text", "pydantic", "temporalio", "workflows"),
}
"""Packages whose modules may be imported whole: they read no clock, draw nothing and touch nothing outside."""

OF = {
    "asyncio": {"CancelledError", "Lock", "Task", "TimeoutError", "create_task", "gather", "shield", "sleep"},
    "datetime": {"UTC", "datetime", "timedelta"},
}
"""Names of two that do more than a workflow may. `wait` and `as_completed` answer in no order."""

OUTSIDE = {"now", "utcnow", "today", "fromtimestamp", "unsafe"}
"""Attributes that read this host's clock or leave the SDK's checks; `workflow.now` is the one that may be asked."""

BUILT_IN = {"__import__", "compile", "eval", "exec", "globals", "input", "open", "print"}
CALLED = {"hash", "id"}  # where they are not called these are names of somebody's own

FIXED = (str, bytes, int, float, type(None), Enum, date, timedelta, tzinfo, RetryPolicy, SearchAttributeKey, TypeVar)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_workflows_keeps_nothing_between_runs(name: str) -> None:
    module = importlib.import_module(name)
    kept = {key: value for key, value in vars(module).items() if not key.startswith("__")}
    kept.pop("annotations", None)  # of `__future__`
    for each in [one for one in kept.values() if isinstance(one, type) and one.__module__ == module.__name__]:
        kept |= {f"{each.__name__}.{key}": value for key, value in vars(each).items() if not key.startswith("__")}
    assert [key for key, value in kept.items() if not fixed(value)] == []


def fixed(value: object) -> bool:
    """True for what nobody can put anything into; functions, classes and modules are looked at where they are made."""
    if isinstance(value, (tuple, frozenset)):
        return all(fixed(one) for one in value)
    if isinstance(value, MappingProxyType):
        return all(fixed(one) for one in value.values())
    if isinstance(value, FIXED) or hasattr(value, "cache_clear"):
        return not hasattr(value, "cache_clear")
    return (
        callable(value) or isinstance(value, (property, staticmethod, classmethod)) or type(value).__name__ == "module"
    )


@pytest.mark.parametrize("name", MODULES)
def test_nothing_in_reach_of_a_workflow_answers_differently_when_it_is_replayed(name: str) -> None:
    assert said(Path(str(importlib.import_module(name).__file__)).read_text()) == []


@pytest.mark.parametrize(
    "code",
    [
        "import random",
        "from time import time",
        "from perdure.adapters.git import vault",
        "from datetime import date",
        "from asyncio import to_thread",
        "import asyncio\nasyncio.wait(())",
        "from datetime import datetime\ndatetime.now()",
        "from temporalio import workflow\nworkflow.unsafe.is_replaying()",
        "def f():\n    global x",
        "def f(x=[]):\n    pass",
        "open('/etc/hosts')",
        "sorted(x, key=lambda one: id(one))",
    ],
)
def test_what_would_answer_differently_is_named(code: str) -> None:
    assert said(code)


def said(code: str) -> list[str]:
    """Each line that the sandbox would have stopped, or that shares something."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, _KINDS) and _bad(node)
    ]


_KINDS = (
    ast.Import,
    ast.ImportFrom,
    ast.Attribute,
    ast.Name,
    ast.Global,
    ast.Call,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
)


def _bad(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(not _may(name.name) for name in names)
        case ast.ImportFrom(module=module, names=names):
            of = OF.get(module or "")
            return not _may(module or "") or (of is not None and not {name.name for name in names} <= of)
        case ast.Attribute(value=ast.Name(id=module), attr=attr) if module in OF and module != "datetime":
            return attr not in OF[module]
        case ast.Attribute(value=ast.Name(id="workflow"), attr="now"):
            return False
        case ast.Attribute(attr=attr):
            return attr in OUTSIDE
        case ast.Name(id=name):
            return name in BUILT_IN
        case ast.Call(func=called):
            return isinstance(called, ast.Name) and called.id in CALLED
        case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
            given = [*args.defaults, *(one for one in args.kw_defaults if one is not None)]
            return any(isinstance(one, (ast.List, ast.Dict, ast.Set, ast.ListComp)) for one in given)
    return True  # a global


def _may(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in IMPORTED)


class Mine(DefaultFailureConverter):
    """Somebody's own."""


def test_models_and_workflows_pass_through_the_sandbox_and_a_runner_without_one_stays() -> None:
    runner = _runner(SandboxedWorkflowRunner())
    assert isinstance(runner, SandboxedWorkflowRunner)
    assert {"perdure", "workflows", "pydantic"} <= set(runner.restrictions.passthrough_modules)
    plain = UnsandboxedWorkflowRunner()
    assert _runner(plain) is plain


def test_what_speaks_for_itself_is_pydantics_and_a_codec_that_somebody_has_configured_stays() -> None:
    assert perdure_data_converter().payload_converter_class is Understanding
    mine = perdure_data_converter(dataclasses.replace(pydantic_data_converter, failure_converter_class=Mine))
    assert (mine.payload_converter_class, mine.failure_converter_class) == (Understanding, Mine)


def test_what_cannot_be_read_is_a_value_where_nothing_was_expected_and_an_error_where_something_was() -> None:
    read = Understanding().from_payloads
    good, bad = Payload(metadata={"encoding": b"json/plain"}, data=b"{}"), Payload(data=b"?")
    broken = Payload(metadata={"encoding": b"json/plain"}, data=b'{"request": ')
    found = read([good, broken, bad])
    assert found[0] == {}
    assert found[1:] == [
        UnreadableValue("Invalid JSON: EOF while parsing a value at line 1 column 12"),
        UnreadableValue("Unknown payload encoding <unknown>"),
    ]
    for payload in (broken, bad):
        with pytest.raises((ValueError, KeyError)):
            read([payload], [DeliveryRequest])


REFUSED = ApplicationError("no", type="ForgeRefused", non_retryable=True)


async def test_every_run_of_a_delivery_asks_for_five_seconds_a_decision(client: Client, fresh: str) -> None:
    """Submitted and left, submitted and accepted, retried, rewound. In a new run of a long history:
    test_words_holds_decisions_and_budget_go_along_into_a_new_run. From the command line: test_same_words_again."""
    assert timedelta(seconds=5) == WORKFLOW_TASK
    script = Script()
    script.troubles = {"open_pull_request": [REFUSED, REFUSED]}
    async with playing(client, script):
        for id, patience in ((fresh, None), (f"{fresh}-accepted", timedelta(seconds=30))):
            delivery = (await Perdure(client).submit(WHOLE, id=id, patience=patience)).delivery
            assert await task_timeout(client, id) == WORKFLOW_TASK
            first = await delivery.result()
            assert first.reason == "forge_refused"
        await delivery.retry()
        handle = client.get_workflow_handle(id)
        second = await delivery.result()
        assert (second.status, second.run_id == first.run_id) == ("delivered", False)
        assert await task_timeout(client, id, second.run_id) == WORKFLOW_TASK
        decided = [number for number, kind, _ in await events(handle) if kind == "workflow_task_completed"]
        rewound = await reset(handle, decided[-1])
        assert await task_timeout(client, id, rewound) == WORKFLOW_TASK
        assert (await delivery.result()).run_id == rewound


async def test_the_treasury_that_deliveries_wait_for_asks_for_as_little(client: Client) -> None:
    await treasury.put_rules(client, [BudgetRule(label="team-a", usd_per_day=1)])
    try:
        assert await task_timeout(client, TREASURY) == WORKFLOW_TASK
    finally:
        await client.get_workflow_handle(TREASURY).terminate()

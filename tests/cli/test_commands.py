"""A command is imported when it is named, runs in one loop, and lets a person finish what they type."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import pytest
import typer
from pydantic import BaseModel
from typer.main import get_command

from perdure.cli import event_loop
from perdure.cli.app import app
from perdure.cli.command_groups import import_object
from perdure.cli.commands.options import option_name
from perdure.cli.event_loop import handle_interrupts
from perdure.models.backlog.request import BacklogRequest
from perdure.models.delivery.request import DeliveryRequest
from tests.cli.conftest import Cli

ROOT: Any = get_command(app)


def all_commands(group: Any = ROOT, path: str = "perdure") -> Iterator[tuple[str, Any]]:
    """Yield every command with what is typed for it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from all_commands(command, f"{path} {name}")
        if command.callback is not None:
            yield f"{path} {name}", command


COMMANDS = dict(all_commands())


def plain_type(annotation: Any) -> Any:
    """Return the type of a parameter without its option."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_does_takes_the_parameters_that_are_typed(name: str) -> None:
    callback = COMMANDS[name].callback.__wrapped__
    typed = inspect.signature(callback.__wrapped__, eval_str=True).parameters
    taken = inspect.signature(import_object(callback.target), eval_str=True).parameters
    named = {key: value for key, value in taken.items() if value.kind is not value.VAR_KEYWORD}
    assert {key: plain_type(typed[key].annotation) for key in named} == {
        key: value.annotation for key, value in named.items()
    }
    assert len(named) < len(taken) or named.keys() == typed.keys()


@pytest.mark.parametrize(
    ("name", "request_type", "others"),
    [
        ("deliver", DeliveryRequest, {"--id", "--new", "--no-wait"}),
        ("run", DeliveryRequest, {"--id", "--new", "--no-wait"}),
        ("backlog start", BacklogRequest, {"--id", "--request", "--yes", "-y"}),
    ],
)
def test_every_option_fills_the_field_for_which_it_is_named_or_is_no_field(
    name: str, request_type: type[BaseModel], others: set[str]
) -> None:
    options = {name for param in COMMANDS[f"perdure {name}"].params for name in param.opts if name[0] == "-"}
    named = {option_name(field) for field in request_type.model_fields}
    assert options - named == others | {"--at", "--every", "--detach", "-d", "--json"}


@pytest.mark.parametrize(
    ("arguments", "module"),
    [("show --help", "look"), ("deliver --help", "start"), ("backlog add --help", "backlog"), ("show --nope", "look")],
)
def test_only_the_module_of_the_command_that_is_named_is_imported(cli: Cli, arguments: str, module: str) -> None:
    loaded = cli.modules(*arguments.split())
    mine = {name for name in loaded if name.startswith("perdure.cli.commands.")}
    assert mine == {"perdure.cli.commands.options", f"perdure.cli.commands.{module}"}
    assert not loaded & {"anthropic", "git", "temporalio", "aiohttp", "asyncio", "perdure.client", "perdure.adapters"}


def test_a_group_has_its_commands_in_the_order_of_its_help() -> None:
    assert list(ROOT.commands["backlog"].commands) == [
        *("start", "status", "graph", "report", "add", "edit", "skip", "retry", "prioritise", "follow"),
        *("hold", "resume", "cancel"),
    ]


def prioritise(*arguments: str) -> Any:
    """The priority that these arguments of `perdure backlog prioritise` name."""
    context = ROOT.commands["backlog"].commands["prioritise"].make_context("prioritise", list(arguments))
    return context.params["priority"]


def test_a_number_below_zero_is_an_argument_where_one_may_be() -> None:
    assert prioritise("night", "api", "-5") == -5
    assert prioritise("night", "api", "-100", "--json") == -100


@pytest.mark.parametrize("arguments", [("-101",), ("-5.5",), ("5", "--foo"), ("-5", "--foo"), ("--foo", "-5"), ("-x",)])
def test_an_option_that_is_none_stays_refused_beside_such_a_number(arguments: tuple[str, ...]) -> None:
    with pytest.raises(typer.TyperException):
        prioritise("night", "api", *arguments)


@pytest.mark.parametrize(("after", "collects"), [(0.0, True), (60.0, False)])
def test_a_command_that_stays_collects_its_garbage_and_one_that_only_loads_does_not(
    after: float, collects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "LOADED_AFTER_S", after)

    async def stays() -> bool:
        await asyncio.sleep(0.01)
        return gc.isenabled()

    before = gc.isenabled()
    gc.disable()
    try:
        assert event_loop.run_coroutine(stays()) is collects
    finally:
        (gc.enable if before else gc.disable)()


async def interrupted(told: list[str], *, interrupts: bool) -> None:
    with handle_interrupts(interrupts=interrupts):
        os.kill(os.getpid(), signal.SIGINT)
        told.append("typed on")
    await asyncio.sleep(0)  # where a cancellation that asyncio has noted would be raised
    told.append("sent")


def test_a_question_ends_at_the_first_ctrl_c() -> None:
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted(told, interrupts=True))
    assert told == []


def test_in_an_editor_ctrl_c_is_the_editors_and_what_was_edited_is_sent() -> None:
    told: list[str] = []
    asyncio.run(interrupted(told, interrupts=False))
    assert told == ["typed on", "sent"]


def test_what_ctrl_c_did_before_it_does_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), handle_interrupts(interrupts=True):
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before

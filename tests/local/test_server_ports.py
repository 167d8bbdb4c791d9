"""Which ports a server gets, and who has a taken one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from perdure.local.identity import (
    DEFAULT_PORTS,
    ServerPorts,
    check_ports_free,
    choose_ports,
    find_free_ports,
    find_port_owner,
    is_port_free,
)
from perdure.models.errors import BadInput


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_s_owner_is_named(taken: int) -> None:
    assert not is_port_free(taken)
    assert find_port_owner(taken).endswith(f"(pid {os.getpid()})")


def test_a_free_port_has_no_owner() -> None:
    port = find_free_ports().grpc
    assert is_port_free(port)
    assert find_port_owner(port) == ""


def test_a_home_gets_the_ports_it_had_before(taken: int) -> None:
    last = find_free_ports()
    assert choose_ports(None, None, last) == last


def test_two_free_ports_are_two() -> None:
    pair = find_free_ports()
    assert pair.grpc != pair.ui
    assert is_port_free(pair.grpc)
    assert is_port_free(pair.ui)


def test_half_a_pair_taken_is_a_pair_taken(taken: int) -> None:
    last = ServerPorts(find_free_ports().grpc, taken)
    chosen = choose_ports(None, None, last)
    assert chosen != last
    assert chosen == DEFAULT_PORTS or (is_port_free(chosen.grpc) and is_port_free(chosen.ui))


@pytest.mark.parametrize("flag", ["--port", "--ui-port"])
def test_a_port_that_was_asked_for_is_never_replaced(taken: int, flag: str) -> None:
    with pytest.raises(BadInput) as error:
        choose_ports(taken if flag == "--port" else None, taken if flag == "--ui-port" else None, None)
    assert error.value.where == flag
    assert choose_ports(port := find_free_ports().grpc, None, None).grpc == port


def test_one_port_for_both_is_refused() -> None:
    with pytest.raises(BadInput, match="given to both"):
        check_ports_free(15000, 15000)

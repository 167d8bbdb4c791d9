"""Pairs of ports: one each, found again, given back, never one that somebody listens on."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.repository.ports import PortPair, are_ports_free, lease_ports, release_ports, write_ports_env
from perdure.adapters.system.files import try_lock
from perdure.adapters.system.home import Home
from perdure.models.config.host import PortRanges
from perdure.models.errors import NoPorts

# Below the range of outgoing connections, and apart for tests that run at the same time.
B = 23000 + 20 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
F = B + 1000
RANGES = PortRanges(backend=(B, B + 4), frontend=(F, F + 4))
ONE = PortRanges(backend=(B, B), frontend=(F, F))


class Attempts:
    """Attempts at deliveries: each holds its lock while it works."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._locks: dict[str, int] = {}

    def begin(self, delivery: str) -> str:
        """Begin to work on this delivery, unless somebody does, and return its name."""
        lock = try_lock(self._home.workspace(delivery) / "lease-tree")
        if lock is not None:
            self._locks[delivery] = lock
        return delivery

    def end(self, delivery: str) -> None:
        """End as an attempt ends that is over, or was killed."""
        os.close(self._locks.pop(delivery))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def attempts(home: Home) -> Iterator[Attempts]:
    attempts = Attempts(home)
    yield attempts
    for delivery in [*attempts._locks]:
        attempts.end(delivery)


def test_a_lease_dies_with_its_attempt_where_no_pair_is_left(home: Home, attempts: Attempts) -> None:
    pairs = [lease_ports(home, RANGES, attempts.begin(f"d{n}")) for n in range(4)]
    attempts.end("d2")  # it waits for a person, or its workflow was terminated
    last = lease_ports(home, RANGES, attempts.begin("last"))
    assert last not in pairs, "not while there is another one"
    assert lease_ports(home, RANGES, attempts.begin("late")) == pairs[2]
    with pytest.raises(NoPorts):  # everybody works
        lease_ports(home, RANGES, attempts.begin("d2"))
    release_ports(home, "d0")
    assert lease_ports(home, RANGES, "d2") == pairs[0]


@contextmanager
def listening(port: int, host: str = "127.0.0.1") -> Iterator[None]:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen()
        yield


def test_a_retry_gets_the_pair_it_had(home: Home, attempts: Attempts) -> None:
    assert lease_ports(home, RANGES, attempts.begin("a")) == lease_ports(home, RANGES, "a")
    assert len(list(home.ports.glob("2*"))) == 1


def test_as_many_deliveries_as_pairs_get_different_ones_and_the_next_waits(home: Home, attempts: Attempts) -> None:
    pairs = {lease_ports(home, RANGES, attempts.begin(f"d{n}")) for n in range(5)}
    assert len(pairs) == 5
    with pytest.raises(NoPorts, match="all 5 port pairs are in use: 5 by other deliveries") as caught:
        lease_ports(home, RANGES, attempts.begin("late"))
    assert caught.value.retryable
    release_ports(home, "d3")
    assert lease_ports(home, RANGES, "late") in pairs


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_pair_somebody_listens_on_is_passed_over(home: Home, attempts: Attempts, host: str) -> None:
    usual = lease_ports(home, RANGES, attempts.begin("a"))
    with listening(usual.frontend, host):
        assert not are_ports_free(usual)
        other = lease_ports(home, RANGES, "a")
    assert other != usual
    assert not (home.ports / f"{usual.backend}-{usual.frontend}").exists(), "the lease of the lost pair is given back"


def test_ports_all_taken_by_others_are_counted_as_such(home: Home, attempts: Attempts) -> None:
    with listening(B), pytest.raises(NoPorts, match="0 by other deliveries, 1 by other programs"):
        lease_ports(home, ONE, attempts.begin("a"))
    assert lease_ports(home, ONE, "a") == PortPair(B, F)


def test_leases_of_deliveries_that_are_gone_are_reclaimed(home: Home, attempts: Attempts) -> None:
    lease_ports(home, ONE, attempts.begin("gone"))
    shutil.rmtree(home.workspace("gone"))
    assert lease_ports(home, ONE, attempts.begin("a")) == PortPair(B, F)
    (home.ports / f"{B}-{F}").write_text("")  # killed between making the lease and writing its name
    assert lease_ports(home, ONE, attempts.begin("b")) == PortPair(B, F)


def test_a_pair_outside_the_configured_ranges_is_given_up(home: Home, attempts: Attempts) -> None:
    old = lease_ports(home, PortRanges(backend=(B + 10, B + 10), frontend=(F + 10, F + 10)), attempts.begin("a"))
    assert lease_ports(home, RANGES, "a") != old
    assert len(list(home.ports.glob("2*"))) == 1


def _lease(root: Path, name: str) -> PortPair:
    home = Home(root)
    return lease_ports(home, RANGES, Attempts(home).begin(name))


def test_processes_that_lease_at_once_get_different_pairs(home: Home) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pairs = pool.starmap(_lease, [(home.root, f"d{n}") for n in range(5)])
    assert len(set(pairs)) == 5


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text("abcdef0123456789-", min_size=1, max_size=80), min_size=1, max_size=5, unique=True))
def test_every_delivery_has_one_pair_of_its_own_within_the_ranges(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    home = Home(tmp_path_factory.mktemp("ports"))
    pairs = [lease_ports(home, RANGES, name, alive=lambda _: True) for name in names]
    assert len(set(pairs)) == len(names)
    assert all(pair.frontend - pair.backend == F - B and B <= pair.backend <= B + 4 for pair in pairs)
    assert pairs == [lease_ports(home, RANGES, name, alive=lambda _: True) for name in names]


def test_the_ports_file_is_what_commands_see_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / ".ports.env").symlink_to("victim")
    path = write_ports_env(tmp_path, PortPair(9100, 9200))
    assert path.read_text() == "BACKEND_PORT=9100\nFRONTEND_PORT=9200\nVITE_BACKEND_URL=http://127.0.0.1:9100\n"
    assert (tmp_path / "victim").read_text() == "untouched"
    assert sorted(p.name for p in tmp_path.iterdir()) == [".ports.env", "victim"]

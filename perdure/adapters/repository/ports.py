"""Pairs of ports, one for the backend and one for the frontend of a delivery's application, leased to deliveries of
this host by files in its home, and written into their worktrees as `.ports.env`. The worker leases them when it opens a
workspace, and `activities.close` releases them."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.system.files import hold_lock, try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.models.config.host import PortRanges
from perdure.models.errors import NoPorts

# S104: bound for an instant to see whether another program has the port, never listened on.
_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1"))  # noqa: S104


@dataclass(frozen=True)
class PortPair:
    """A port for the backend and a port for the frontend of one delivery's application."""

    backend: int
    frontend: int

    def environment_variables(self) -> dict[str, str]:
        """Return the variables of a workspace's commands, which are also the content of `.ports.env`."""
        return {
            "BACKEND_PORT": str(self.backend),
            "FRONTEND_PORT": str(self.frontend),
            "VITE_BACKEND_URL": f"http://127.0.0.1:{self.backend}",
        }


def lease_ports(
    home: Home, ranges: PortRanges, delivery: str, *, alive: Callable[[str], bool] | None = None
) -> PortPair:
    """Lease a pair of free ports to this delivery, and return it. It keeps the pair that it has already while both
    ports are free; else it gets the first free one, searched for from a place that is computed from its whole id.

    alive  tells whether a delivery that holds a lease still exists; by default, whether its workspace has a directory
           (so make that before leasing)

    Other leases of this delivery, and those of deliveries that do not exist, are deleted. Where no pair is left, one is
    taken from a delivery that nobody works on: it waits for a person, or was ended from outside, and gets another pair
    when it goes on. Waits for the lock on all leases. Raises NoPorts, which says how many pairs are in use by whom.
    """
    exists = alive or (lambda other: home.workspace(other).exists())
    with hold_lock(home.ports / ".lock"):
        holders = _read_leases(home)
        own = [pair for pair, holder in holders.items() if holder == delivery]
        others = [pair for pair, holder in holders.items() if pair not in own and holder and exists(holder)]
        pairs = _pairs_in(ranges)
        first_index = int.from_bytes(hashlib.sha256(delivery.encode()).digest()) % len(pairs)
        candidates = [pair for pair in own if pair in pairs]
        candidates += [
            pair for pair in pairs[first_index:] + pairs[:first_index] if pair not in own and pair not in others
        ]
        chosen = next((pair for pair in candidates if are_ports_free(pair)), None)
        if chosen is None:
            idle = [pair for pair in others if pair in pairs and not _is_worked_on(home, holders[pair])]
            chosen = next((pair for pair in idle if are_ports_free(pair)), None)
            others = [pair for pair in others if pair != chosen]
        reused = chosen in own
        for pair in holders.keys() - {*others, *([chosen] if reused else [])}:
            _lease_file(home, pair).unlink(missing_ok=True)
        if chosen is None:
            raise _no_ports_error(ranges, len(pairs), len(candidates))
        if not reused:
            _write_lease(home, chosen, delivery)
        return chosen


def release_ports(home: Home, delivery: str) -> None:
    """Delete the leases of this delivery; do nothing where it has none. Waits for the lock on all leases."""
    with hold_lock(home.ports / ".lock"):
        for pair, holder in _read_leases(home).items():
            if holder == delivery:
                _lease_file(home, pair).unlink(missing_ok=True)


def are_ports_free(pair: PortPair) -> bool:
    """Return whether both ports can be bound now, on loopback (v4 and v6) and on every address."""
    return all(_can_bind(port) for port in (pair.backend, pair.frontend))


def write_ports_env(tree: Path, pair: PortPair) -> Path:
    """Write `.ports.env` into a worktree and return its path; whatever has that name is replaced (a link is not
    followed)."""
    path = tree / ".ports.env"
    lines = "".join(f"{name}={value}\n" for name, value in pair.environment_variables().items())
    write_whole(path, lines.encode(), mode=0o644, sync=False)
    return path


def _pairs_in(ranges: PortRanges) -> list[PortPair]:
    """Return all pairs in these ranges: the first ports of both, the second ones, and so on."""
    backend = range(ranges.backend[0], ranges.backend[1] + 1)
    frontend = range(ranges.frontend[0], ranges.frontend[1] + 1)
    return [PortPair(*ports) for ports in zip(backend, frontend, strict=False)]


def _no_ports_error(ranges: PortRanges, pairs: int, occupied: int) -> NoPorts:
    """Return the error that no pair is free.

    pairs     the number of all pairs
    occupied  how many of them are not leased by other deliveries, and so used by other programs
    """
    (b0, b1), (f0, f1) = ranges.backend, ranges.frontend
    return NoPorts(
        f"all {pairs} port pairs are in use: {pairs - occupied} by other deliveries, {occupied} by other programs",
        where=f"backend {b0}-{b1}, frontend {f0}-{f1}",
        fix="wait for a delivery to end, or widen PERDURE_PORTS_BACKEND and PERDURE_PORTS_FRONTEND",
    )


def _is_worked_on(home: Home, delivery: str) -> bool:
    """Return whether a worker is at work on the delivery: one of its `lease-…` files is locked, and the lock dies with
    the worker."""
    for lock in home.workspace(delivery).glob("lease-*"):
        if (descriptor := try_lock(lock)) is None:
            return True
        os.close(descriptor)
    return False


def _lease_file(home: Home, pair: PortPair) -> Path:
    return home.ports / f"{pair.backend}-{pair.frontend}"


def _read_leases(home: Home) -> dict[PortPair, str]:
    """Return every leased pair with its delivery, from the lease files.

    The name is empty where a crash came between making and writing a lease.
    """
    leases: dict[PortPair, str] = {}
    for path in sorted(home.ports.iterdir()):
        backend, _, frontend = path.name.partition("-")
        if backend.isdigit() and frontend.isdigit():
            leases[PortPair(int(backend), int(frontend))] = path.read_text().strip()
    return leases


def _write_lease(home: Home, pair: PortPair, delivery: str) -> None:
    """Write the lease of a pair; raise FileExistsError where it is leased, so that a lease is never overwritten."""
    handle = os.open(_lease_file(home, pair), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(delivery + "\n")


def _can_bind(port: int) -> bool:
    """Return whether a TCP port can be bound now on every address family that the host has. Each is bound for an
    instant; none is listened on."""
    for family, address in _ADDRESSES:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # As servers do: connections of a server that has just ended do not count as a program that has the
                # port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):  # a host without IPv6
                continue
            return False
    return True

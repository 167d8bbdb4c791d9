"""Pairs of ports, leased to deliveries of this host."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.system.files import locked, try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.models.errors import NoPorts
from perdure.models.host_config import PortRanges

# S104: bound for an instant to see whether anybody else is there, never listened on.
_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1"))  # noqa: S104


@dataclass(frozen=True)
class PortPair:
    backend: int
    frontend: int

    def environment(self) -> dict[str, str]:
        """The variables of a workspace's commands, and the content of `.ports.env`."""
        return {
            "BACKEND_PORT": str(self.backend),
            "FRONTEND_PORT": str(self.frontend),
            "VITE_BACKEND_URL": f"http://127.0.0.1:{self.backend}",
        }


def lease_ports(
    home: Home, ranges: PortRanges, delivery: str, *, alive: Callable[[str], bool] | None = None
) -> PortPair:
    """A pair for this delivery: the one it already has while that is free, else the first free one, looked for from
    a place the delivery's whole id decides. A pair whose ports somebody took gets its delivery another one.

    `alive` says whether a delivery that holds a lease still exists; by default, whether its workspace has a directory
    (so make that before leasing). Pairs of others are reclaimed. Where no pair is left, one goes whose delivery nobody
    works on: it waits for a person, or was ended from outside; it gets another when it goes on. Raises NoPorts, which
    says who holds what.
    """
    exists = alive or (lambda other: home.workspace(other).exists())
    with locked(home.ports / ".lock"):
        held = _leases(home)
        own = [pair for pair, holder in held.items() if holder == delivery]
        others = [pair for pair, holder in held.items() if pair not in own and holder and exists(holder)]
        pairs = _pairs(ranges)
        first = int.from_bytes(hashlib.sha256(delivery.encode()).digest()) % len(pairs)
        candidates = [pair for pair in own if pair in pairs]
        candidates += [pair for pair in pairs[first:] + pairs[:first] if pair not in own and pair not in others]
        chosen = next((pair for pair in candidates if still_free(pair)), None)
        if chosen is None:
            idle = [pair for pair in others if pair in pairs and not _worked_on(home, held[pair])]
            chosen = next((pair for pair in idle if still_free(pair)), None)
            others = [pair for pair in others if pair != chosen]
        reused = chosen in own
        for pair in held.keys() - {*others, *([chosen] if reused else [])}:
            _lease_file(home, pair).unlink(missing_ok=True)
        if chosen is None:
            raise _no_ports(ranges, len(pairs), len(candidates))
        if not reused:
            _take(home, chosen, delivery)
        return chosen


def release(home: Home, delivery: str) -> None:
    """Give back whatever this delivery holds; nothing held is fine."""
    with locked(home.ports / ".lock"):
        for pair, holder in _leases(home).items():
            if holder == delivery:
                _lease_file(home, pair).unlink(missing_ok=True)


def still_free(pair: PortPair) -> bool:
    """True where both ports can be bound now, on loopback (v4 and v6) and on every address."""
    return all(_can_bind(port) for port in (pair.backend, pair.frontend))


def write_ports_env(tree: Path, pair: PortPair) -> Path:
    """Write `.ports.env` into a worktree, replacing whatever has that name (a link is not followed)."""
    path = tree / ".ports.env"
    lines = "".join(f"{name}={value}\n" for name, value in pair.environment().items())
    write_whole(path, lines.encode(), mode=0o644, sync=False)
    return path


def _pairs(ranges: PortRanges) -> list[PortPair]:
    backend = range(ranges.backend[0], ranges.backend[1] + 1)
    frontend = range(ranges.frontend[0], ranges.frontend[1] + 1)
    return [PortPair(*ports) for ports in zip(backend, frontend, strict=False)]


def _no_ports(ranges: PortRanges, pairs: int, taken: int) -> NoPorts:
    (b0, b1), (f0, f1) = ranges.backend, ranges.frontend
    return NoPorts(
        f"all {pairs} port pairs are in use: {pairs - taken} by other deliveries, {taken} by other programs",
        where=f"backend {b0}-{b1}, frontend {f0}-{f1}",
        fix="wait for a delivery to end, or widen PERDURE_PORTS_BACKEND and PERDURE_PORTS_FRONTEND",
    )


def _worked_on(home: Home, delivery: str) -> bool:
    """True while an attempt of any worker is at work on the delivery: its lock dies with it."""
    for lock in home.workspace(delivery).glob("lease-*"):
        if (free := try_lock(lock)) is None:
            return True
        os.close(free)
    return False


def _lease_file(home: Home, pair: PortPair) -> Path:
    return home.ports / f"{pair.backend}-{pair.frontend}"


def _leases(home: Home) -> dict[PortPair, str]:
    """Every leased pair and its delivery; the name is empty where a crash came between making and writing a lease."""
    found: dict[PortPair, str] = {}
    for path in sorted(home.ports.iterdir()):
        backend, _, frontend = path.name.partition("-")
        if backend.isdigit() and frontend.isdigit():
            found[PortPair(int(backend), int(frontend))] = path.read_text().strip()
    return found


def _take(home: Home, pair: PortPair, delivery: str) -> None:
    """O_EXCL on top of the lock: two leases of one pair are an error, never an overwrite."""
    handle = os.open(_lease_file(home, pair), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(delivery + "\n")


def _can_bind(port: int) -> bool:
    for family, address in _ADDRESSES:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # As servers do: connections of a server that just ended do not count as somebody being there.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):  # a host without IPv6
                continue
            return False
    return True

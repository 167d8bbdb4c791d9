"""The hosts that setup may reach: those outside, of `[setup] hosts` where that names some, and never this machine."""

from __future__ import annotations

import asyncio
import fnmatch
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_ADDRESS = re.compile(r"https?://(?:[^/@\s\"']*@)?(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::(\d+))?")
_PORTS = {"https": 443, "http": 80}
_NOT_OUTSIDE = tuple(map(ipaddress.ip_network, (
    "0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128",  # this machine
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7",  # its private network
    "169.254.0.0/16", "fe80::/10",  # its link, with the metadata of clouds
    "224.0.0.0/4", "240.0.0.0/4", "ff00::/8",  # everybody
    "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32",  # NAT64, 6to4, Teredo: an IPv4 address, whichever
)))  # fmt: skip

LOCAL = ("localhost", "127.0.0.1", "::1")


class ReachRefused(Exception):
    """Raised for a host that setup may not reach or that is not found. From `Reach.resolve_addresses` its text ends the
    sentence "setup cannot reach NAME: …"; from the proxy it is a whole sentence."""


@dataclass(frozen=True)
class Reach:
    """The hosts that a setup may reach.

    hosts    names, `*.example.com` and `name:port` too; empty: every host outside
    trusted  `name:port` of hosts that this machine's owner has named, wherever they are: the package index they
             configured, and `setup_hosts` of the user file
    """

    hosts: tuple[str, ...] = ()
    trusted: frozenset[str] = frozenset()

    async def resolve_addresses(self, host: str, port: int, *, needed: bool = True) -> list[str]:
        """Return the addresses of a host and port that may be reached; of a host that is not trusted only those
        outside.

        Raises ReachRefused for a host that may not be reached, has no allowed address, or is not found. `needed` False:
        somebody else connects, so a name that is not known here is theirs to resolve: then the list is empty.
        """
        name = host.strip("[]").lower().rstrip(".")
        trusted = _matches_any(self.trusted, name, port)
        if not trusted and self.hosts and not _matches_any(self.hosts, name, port):
            raise ReachRefused("it is not in [setup] hosts")
        try:
            results = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            if not needed:
                return []
            raise ReachRefused("there is no such host") from None
        resolved = list(dict.fromkeys(str(result[4][0]) for result in results))
        allowed = resolved if trusted else [address for address in resolved if is_outside(address)]
        if not allowed:
            raise ReachRefused("it is this machine, or on its private network")
        return allowed


EVERYWHERE = Reach()
"""Every host outside."""


def is_outside(address: str) -> bool:
    """Return whether an IP address is another machine's, on the public network."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return not any(parsed in network for network in _NOT_OUTSIDE) and not _is_own_address(str(parsed))


def addresses_in_settings(owner: Mapping[str, str], files: Iterable[Path]) -> frozenset[str]:
    """Return `name:port` of every http address in the owner's settings for packages: in the variables `owner`, except
    those that name a proxy, and in `files`. Files that cannot be read are skipped."""
    texts = [value for name, value in owner.items() if not name.lower().endswith("_proxy")]
    for path in files:
        try:
            texts.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return frozenset(
        f"{match[1].strip('[]').lower()}:{match[2] or _PORTS[match[0].partition(':')[0]]}"
        for text in texts
        for match in _ADDRESS.finditer(text)
    )


def _matches_any(patterns: Iterable[str], name: str, port: int) -> bool:
    """Return whether a host and port match one of the patterns: a name or `*.example.com` for every port, or with
    `:port` for that one."""
    for pattern in patterns:
        host_pattern, separator, port_text = pattern.lower().rpartition(":")
        if not (separator and port_text.isdigit() and "]" not in port_text):
            host_pattern, port_text = pattern.lower(), str(port)
        if fnmatch.fnmatchcase(name, host_pattern.strip("[]")) and int(port_text) == port:
            return True
    return False


def _is_own_address(address: str) -> bool:
    """Return whether an IP address is this machine's, found by binding to it, which only works then."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True

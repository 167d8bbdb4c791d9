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
    """The reason, in words that end the sentence "setup cannot reach NAME: …"."""


@dataclass(frozen=True)
class Reach:
    """`hosts`: names, `*.example.com` and `name:port` too; empty: every host outside.

    `trusted`: `name:port` of hosts that this machine's owner has named, wherever they are: the package index they
    configured, and `setup_hosts` of the user file.
    """

    hosts: tuple[str, ...] = ()
    trusted: frozenset[str] = frozenset()

    async def addresses(self, host: str, port: int, *, needed: bool = True) -> list[str]:
        """Return the addresses of a host and port. Refused for one that must not be reached or is not found.

        `needed` False: somebody else connects. Then a name that is not known here is theirs to find: no address.
        """
        name = host.strip("[]").lower().rstrip(".")
        trusted = _matches(self.trusted, name, port)
        if not trusted and self.hosts and not _matches(self.hosts, name, port):
            raise ReachRefused("it is not in [setup] hosts")
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            if not needed:
                return []
            raise ReachRefused("there is no such host") from None
        known = list(dict.fromkeys(str(one[4][0]) for one in found))
        allowed = known if trusted else [address for address in known if outside(address)]
        if not allowed:
            raise ReachRefused("it is this machine, or on its private network")
        return allowed


EVERYWHERE = Reach()
"""Every host outside."""


def outside(address: str) -> bool:
    """True when an address is another machine's, on the public network."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return not any(parsed in network for network in _NOT_OUTSIDE) and not _ours(str(parsed))


def named_by_owner(owner: Mapping[str, str], files: Iterable[Path]) -> frozenset[str]:
    """`name:port` of every address in the owner's settings for packages: variables (`owner`) and `files`."""
    texts = [value for name, value in owner.items() if not name.lower().endswith("_proxy")]
    for path in files:
        try:
            texts.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return frozenset(
        f"{found[1].strip('[]').lower()}:{found[2] or _PORTS[found[0].partition(':')[0]]}"
        for text in texts
        for found in _ADDRESS.finditer(text)
    )


def _matches(patterns: Iterable[str], name: str, port: int) -> bool:
    for pattern in patterns:
        wanted, separator, number = pattern.lower().rpartition(":")
        if not (separator and number.isdigit() and "]" not in number):
            wanted, number = pattern.lower(), str(port)
        if fnmatch.fnmatchcase(name, wanted.strip("[]")) and int(number) == port:
            return True
    return False


def _ours(address: str) -> bool:
    """Only an address of this machine can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True

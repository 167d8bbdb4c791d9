"""The hosts that setup may reach, and the only way out of its network namespace: an HTTP proxy on a Unix socket, which
decides what it connects to. Used by the full sandbox; whoever runs setup says which hosts.

It resolves names itself and connects to the addresses it has checked, so that a name which means something else a
moment later leads nowhere. It carries CONNECT and plain http, and knows no secret of ours but the owner's own proxy's.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fnmatch
import ipaddress
import os
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

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
    """Return whether an IP address is another machine's, on the public network. Raises ValueError for a text that is no
    address."""
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


SETUP_CONNECT_S = 30.0
"""Seconds for a host outside to accept a connection, and for a program in setup to say where it wants to go."""

SETUP_CONNECTIONS = 128
"""The most connections at once through the proxy of one setup: each takes two of the worker's descriptors. By its
defaults uv opens up to 50, npm 15."""

SETUP_HEAD_BYTES = 64 * 1024
"""The largest head of a request to setup's proxy, and the most bytes that it copies at once."""


PORT = 3128
"""The proxy's port inside the namespace, where nothing else listens."""

_CONNECT = re.compile(rb"CONNECT (\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5}) HTTP/1\.[01]")
_PLAIN = re.compile(rb"([A-Z]{1,10}) http://(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::(\d{1,5}))?(/[!-~]*)? HTTP/1\.[01]")
_PER_HOP = (b"connection:", b"proxy-", b"keep-alive:", b"upgrade:")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def proxy_variables(reach: Reach) -> dict[str, str]:
    """Return the environment variables by which installers find the proxy.

    They reach localhost without it, where setup may have started a server, unless the owner has named a package index
    on this machine: that one is outside of the namespace.
    """
    direct = () if any(name.rpartition(":")[0] in LOCAL for name in reach.trusted) else LOCAL
    return {
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{PORT}"),
        **dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(direct)),
        "JAVA_TOOL_OPTIONS": " ".join(f"-D{name}={value}" for name, value in _java_proxy_properties(direct)),
    }


def _java_proxy_properties(direct: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Yield the Java properties, as name and value, by which Maven, Gradle and others find the proxy: they do not look
    at the variables. Maven 3.9 needs the last one. `direct`: hosts reached without the proxy."""
    for scheme in ("http", "https"):
        yield from ((f"{scheme}.proxyHost", "127.0.0.1"), (f"{scheme}.proxyPort", PORT))
    yield from (("http.nonProxyHosts", "|".join(direct)), ("aether.connector.http.useSystemProperties", "true"))


@asynccontextmanager
async def open_setup_proxy(
    reach: Reach, owner: Mapping[str, str], on_refused: Callable[[str], None]
) -> AsyncIterator[Path]:
    """Run setup's proxy while the block runs, and yield the path of its Unix socket, which only this user can open. At
    the end all its connections are closed.

    reach       the hosts that may be reached
    owner       variables that may name a proxy of the owner's own; every connection goes through that one then
    on_refused  gets a line for each host that was refused, once

    A request to a host that may not be reached, and a connection beyond SETUP_CONNECTIONS, is answered 403 with the
    reason.
    """
    refusals: set[str] = set()
    open_tasks: set[asyncio.Task[object]] = set()

    async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to where its request wants to go, and close it; answer 403 with the reason when that is
        refused. A broken connection ends without an answer."""
        task = asyncio.current_task()
        assert task is not None
        open_tasks.add(task)
        try:
            if len(open_tasks) > SETUP_CONNECTIONS:
                raise ReachRefused(f"setup's proxy carries {SETUP_CONNECTIONS} connections at once, and no more")
            await _serve_request(reader, writer, reach, owner)
        except ReachRefused as refused:
            if (line := str(refused)) not in refusals:
                refusals.add(line)
                on_refused(line)
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
            writer.write(line.encode(errors="replace") + b"\n")
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            open_tasks.discard(task)
            with contextlib.suppress(OSError):
                writer.close()

    with tempfile.TemporaryDirectory(prefix="perdure-") as directory:  # a socket's path has at most 107 bytes
        path = Path(directory, "out")
        server = await asyncio.start_unix_server(serve_connection, path, limit=SETUP_HEAD_BYTES)
        os.chmod(path, 0o600)
        try:
            yield path
        finally:
            server.close()
            for task in open_tasks:  # a host outside that does not close would keep them open
                task.cancel()
            await asyncio.gather(*open_tasks, return_exceptions=True)


async def _serve_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reach: Reach, owner: Mapping[str, str]
) -> None:
    """Read a CONNECT or plain http request, connect to its host, and copy bytes both ways until the host closes.

    Headers of plain http that concern this connection alone are left out. Raises ReachRefused for a host that may not
    be reached or does not answer, and for any other request; TimeoutError, OSError and others when the client's side
    breaks.
    """
    async with asyncio.timeout(SETUP_CONNECT_S):
        request_line, *headers = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    if match := _CONNECT.fullmatch(request_line):
        host, port = match[1].decode(), int(match[2])
        target = await _connect_allowed(host, port, reach, owner.get("https_proxy") or owner.get("HTTPS_PROXY") or "")
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    elif match := _PLAIN.fullmatch(request_line):
        host, port = match[2].decode(), int(match[3] or 80)
        target = await _connect_allowed(host, port, reach, owner.get("http_proxy") or "")
        kept_headers = [line for line in headers if not line.lower().startswith(_PER_HOP)]
        lines = [b"%b %b HTTP/1.1" % (match[1], match[4] or b"/"), *kept_headers, b"Connection: close", b"", b""]
        target[1].write(b"\r\n".join(lines))
    else:
        raise ReachRefused("setup's proxy carries https and http, and nothing else")
    target_reader, target_writer = target
    upload = asyncio.create_task(_copy_stream(reader, target_writer))
    try:
        await _copy_stream(target_reader, writer)
    finally:
        upload.cancel()
        with contextlib.suppress(OSError):
            target_writer.close()


async def _connect_allowed(host: str, port: int, reach: Reach, owner_proxy: str) -> Streams:
    """Connect to a host if it may be reached, and return the connection's streams. Raises ReachRefused when it may not,
    or does not answer; OSError or TimeoutError when the owner's proxy does not.

    owner_proxy  address of the owner's proxy, to connect through; '': connect directly, to the first address that
                 answers
    """
    try:
        if not 0 < port < 1 << 16:
            raise ReachRefused("it has no such port")
        addresses = await reach.resolve_addresses(host, port, needed=not owner_proxy)
    except ReachRefused as refused:
        raise ReachRefused(f"setup cannot reach {host}:{port}: {refused}") from None
    if owner_proxy:
        return await _connect_through_proxy(owner_proxy, host, port)
    last_error: OSError | TimeoutError = OSError("no address")
    for address in addresses:
        try:
            async with asyncio.timeout(SETUP_CONNECT_S):
                return await asyncio.open_connection(address, port)
        except (OSError, TimeoutError) as error:
            last_error = error
    raise ReachRefused(f"{host}:{port} does not answer: {last_error or 'it took too long'}")


async def _connect_through_proxy(proxy: str, host: str, port: int) -> Streams:
    """Connect to a host through the owner's HTTP proxy, by CONNECT with the login in the proxy's address, and return
    the connection's streams. Without an answer that allows it the connection is closed.

    Raises ReachRefused when the proxy refuses or is not an http:// one; OSError, TimeoutError, IncompleteReadError or
    LimitOverrunError when it does not answer, or breaks off, or goes on without an end.
    """
    address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if address.scheme != "http" or not address.hostname:
        raise ReachRefused("the proxy in this machine's environment is not an http:// one")
    auth_header = b""
    if address.username:
        credentials = f"{unquote(address.username)}:{unquote(address.password or '')}".encode()
        auth_header = b"Proxy-Authorization: Basic %b\r\n" % base64.b64encode(credentials)
    authority = f"{host}:{port}".encode()
    async with asyncio.timeout(SETUP_CONNECT_S):
        reader, writer = await asyncio.open_connection(address.hostname, address.port or 80)
        try:
            writer.write(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, auth_header))
            answer = await reader.readuntil(b"\r\n\r\n")
            if not re.match(rb"HTTP/1\.[01] 2\d\d", answer):
                raise ReachRefused(f"the proxy in this machine's environment refuses {host}:{port}")
        except BaseException:
            writer.close()
            raise
    return reader, writer


async def _copy_stream(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy all that `source` sends to `target`, then close the sending side of `target`. A broken connection ends it
    without an error."""
    with contextlib.suppress(OSError):
        while data := await source.read(SETUP_HEAD_BYTES):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()

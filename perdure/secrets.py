"""Keys and tokens of this process: kept in its memory alone, out of reach of its children and of other processes.
`take` moves them there from the environment when a program (the worker, the command line) starts; `environment` reads
them again, and `without_secrets` and `handed_over` make the environment of a child without them or with them.

Standard library only: `take` comes before every import that may start a process (GitPython runs `git version`).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from perdure.models.forges import FORGES

NAMES = frozenset(name for forge in FORGES for name in forge.secret_variables) | frozenset({
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS",
    "OPENAI_API_KEY", "GEMINI_API_KEY",
    "PERDURE_WEBHOOK_URL", "PERDURE_WEBHOOK_SECRET",
    "TEMPORAL_API_KEY", "TEMPORAL_TLS_CLIENT_KEY_DATA", "TEMPORAL_CODEC_AUTH",
})  # fmt: skip
"""The variables nothing may inherit that does not itself ask a model, a forge or Temporal."""

_PREFIX = "TEMPORAL_GRPC_META_"  # headers of every call to Temporal: an authorization among them
_DESCRIPTOR = "PERDURE_SECRETS_FD"
_PR_SET_DUMPABLE = 4

_held: dict[str, str] = {}


def is_secret(name: str) -> bool:
    """Return whether a variable of this name holds a key or token: one of NAMES, or a header of calls to Temporal."""
    return name in NAMES or name.startswith(_PREFIX)


def take() -> None:
    """Move keys and tokens from this process's environment, and from the pipe of `handed_over`, into its memory, and
    close that memory to others. It is the first call of a program. Raises OSError or ValueError when that pipe cannot
    be read.

    Afterwards `environment` returns them, `os.environ` does not, and /proc/<pid>/environ, which shows what a program
    was started with, is overwritten. On Linux other processes of the same user can read neither it nor the memory, and
    no crash writes the memory to a file.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if sys.platform != "win32":  # there the command says so, a moment later
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _held.update(_read_inherited_secrets(os.environ.pop(_DESCRIPTOR, "")))
    for name in [name for name in os.environ if is_secret(name)]:
        _held[name] = os.environ.pop(name)
    if sys.platform == "linux":
        _overwrite_first_environment()


def environment() -> dict[str, str]:
    """Return this process's environment variables together with the secrets that `take` has moved out of them: for
    reading keys, never for a child."""
    return {**_held, **os.environ}


def without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without its secrets, for a program that asks neither a model nor a forge: a browser, the Temporal
    command line, `--version`."""
    return {name: value for name, value in env.items() if not is_secret(name)}


@contextmanager
def handed_over(env: Mapping[str, str]) -> Iterator[tuple[dict[str, str], int]]:
    """Yield what a child that calls `take` is started with: `env` without its secrets, which names the pipe that holds
    them, and that pipe's descriptor, which the child must inherit.

    The child, and any program that starts it for us, has no secret in its environment at any moment. The descriptor is
    closed when the context ends. Raises BlockingIOError when the secrets are longer than a pipe holds.
    """
    secret = json.dumps({name: value for name, value in env.items() if is_secret(name)}).encode()
    reading, writing = os.pipe()
    try:
        try:
            os.set_blocking(writing, False)
            if os.write(writing, secret) < len(secret):
                raise BlockingIOError("the keys and tokens in the environment are longer than a pipe holds")
        finally:
            os.close(writing)
        yield {**without_secrets(env), _DESCRIPTOR: str(reading)}, reading
    finally:
        os.close(reading)


@contextmanager
def within(world: Mapping[str, str]) -> Iterator[None]:
    """Replace this process's environment by `world`, and forget the secrets that `take` moved into memory, until the
    context ends; then restore both."""
    before, held = dict(os.environ), dict(_held)
    os.environ.clear()
    os.environ.update(world)
    _held.clear()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        _held.update(held)


def _read_inherited_secrets(descriptor: str) -> dict[str, str]:
    """Read the secrets that the parent process wrote into a pipe, as a JSON object, and close it.

    Returns values by name, only of names that `is_secret` knows; empty when `descriptor`, the pipe's number, is no
    number. Raises OSError when the pipe cannot be read, ValueError when it holds no JSON.
    """
    if not descriptor.isdigit():
        return {}
    with open(int(descriptor), "rb") as pipe:
        found = json.loads(pipe.read() or b"{}")
    return {str(name): str(value) for name, value in found.items() if is_secret(name)}


def _overwrite_first_environment() -> None:
    """Overwrite with zeros the values of secrets in the memory where the kernel put this process's first environment
    (Linux). Other variables stay: the C library still points to them. Does nothing when /proc cannot be read or the
    kernel hides where that memory is."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end, proc(5): 0 where the kernel hides them
    at = start
    for entry in ctypes.string_at(start, end - start).split(b"\0") if start else ():
        name, _, value = entry.partition(b"=")
        if value and is_secret(os.fsdecode(name)):
            ctypes.memset(at + len(name) + 1, 0, len(value))
        at += len(entry) + 1

"""Messages of conversations as the vault holds them, one object each: read, and kept in this process with what was
computed of each alone, so that a turn reads and computes only what is new.

What is kept is named by the vault and the message's hash, so it is the same whoever reads it, and the next process
makes it again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from perdure.adapters.git.command import GitError
from perdure.adapters.git.vault import Vault

KEPT_BYTES = 32 * 1024**2
"""Of the messages that are kept, as they are stored: the conversations of 32 deliveries at once with 100 turns of 10
KB. In memory they take three times as much. A longer conversation is read from the vault again each turn."""

T = TypeVar("T")


class StoredMessage(dict[str, Any]):
    """A message of a conversation that the vault holds under the hash `sha`. Turns share it: nobody changes one.

    size      of the object, in bytes
    computed  what was computed of it, by what it was computed with
    """

    def __init__(self, sha: str, data: bytes) -> None:
        super().__init__(json.loads(data))
        self.sha, self.size = sha, len(data)
        self.computed: dict[Hashable, Any] = {}


def computed_once(message: Mapping[str, Any], key: Hashable, compute: Callable[[], T]) -> T:
    """Return `compute()`, kept with a message that is stored; computed each time for one that is not.

    key  names what is computed, and all that it depends on but the message
    """
    if not isinstance(message, StoredMessage):
        return compute()
    if key not in message.computed:
        message.computed[key] = compute()
    value: T = message.computed[key]
    return value


def compact_json(value: Mapping[str, Any]) -> bytes:
    """Return a message, or another record, as the vault stores it."""
    return json.dumps(value, separators=(",", ":")).encode()


def read_messages(vault: Vault, shas: Sequence[str]) -> list[StoredMessage]:
    """Return the messages that these blobs of conversations hold, in order. Raises GitError where one is missing."""
    messages = {sha: _KEPT.find_message((vault.path, sha)) for sha in shas}
    unknown = [sha for sha, message in messages.items() if message is None]
    blobs = {sha: vault.loose.content("blob", sha) for sha in unknown}
    if None in blobs.values():
        object_names = "".join(f"{sha}\n" for sha in unknown).encode()
        output = vault.git.execute("cat-file", "--batch", stdin=object_names).stdout
        blobs = dict(zip(unknown, _split_batch(output), strict=True))
    read = {sha: StoredMessage(sha, data or b"") for sha, data in blobs.items()}
    for sha, message in read.items():
        _KEPT.keep_message((vault.path, sha), message)
    return [messages[sha] or read[sha] for sha in shas]


class _KeptMessages:
    """The messages of this process that were used last, KEPT_BYTES of them at most. For any number of threads."""

    def __init__(self) -> None:
        self._messages: OrderedDict[tuple[Path, str], StoredMessage] = OrderedDict()
        self._bytes, self._lock = 0, Lock()

    def find_message(self, name: tuple[Path, str]) -> StoredMessage | None:
        """Return the message of this name (vault, hash), None where it is not kept."""
        with self._lock:
            if name in self._messages:
                self._messages.move_to_end(name)
            return self._messages.get(name)

    def keep_message(self, name: tuple[Path, str], message: StoredMessage) -> None:
        """Keep a message; those that were not used for longest go where it is too much."""
        with self._lock:
            if name not in self._messages:
                self._messages[name] = message
                self._bytes += message.size
            while self._bytes > KEPT_BYTES:
                self._bytes -= self._messages.popitem(last=False)[1].size


_KEPT = _KeptMessages()


def _split_batch(output: bytes) -> Iterator[bytes]:
    """Yield the content of each object in the output of `cat-file --batch`. Raises GitError for an object that is
    missing."""
    position = 0
    while position < len(output):
        header_end = output.index(b"\n", position)
        header = output[position:header_end].decode()
        if header.endswith(" missing"):
            raise GitError(["cat-file"], 0, header)
        size = int(header.split()[2])
        yield output[header_end + 1 : header_end + 1 + size]
        position = header_end + 1 + size + 1

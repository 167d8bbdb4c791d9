"""Who we are to a remote: a name and a secret, for one server and nobody else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Credential:
    """`server` is scheme, host and port (`https://github.com`); the secret is given to git for it alone."""

    server: str
    username: str
    password: str = field(repr=False)


class Keyring(Protocol):
    def credential(self, url: str) -> Credential | None:
        """What to show to the server of a repository URL; None: the owner's own git configuration answers."""
        ...


class NoKeys:
    """The owner's own credential helpers and ssh keys, nothing of ours."""

    def credential(self, url: str) -> Credential | None:
        return None


NO_KEYS: Keyring = NoKeys()

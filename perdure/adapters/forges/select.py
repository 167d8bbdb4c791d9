"""Which forge belongs to a repository, and who we are to it."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from perdure.adapters.forges.base import Forge
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.credentials import Credential


class Forges:
    """The forges that this process can speak to; a Keyring for git. Holds tokens, in this process only.

    `secrets` are the values to keep out of everything that is stored or shown.
    """

    secrets: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Forges:
        """Takes tokens out of `environ`: what is started afterwards must not inherit them. BadInput for a bad one."""
        return cls()

    def forge(self, url: str) -> Forge | None:
        """The forge of an origin; None when it has none that Perdure speaks to yet: the branch is pushed all the
        same. ForgeRefused when it is one that we know and have no token for."""
        if url.startswith("file://") or Path(url).is_absolute():
            return LocalForge(url)
        return None

    def credential(self, url: str) -> Credential | None:
        """ForgeUnavailable when a token has to be asked for and cannot be had now."""
        return None

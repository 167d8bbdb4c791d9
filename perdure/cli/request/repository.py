"""Facts of a target repository, as far as they can be known here without fetching anything."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from perdure.models.errors import BadInput
from perdure.models.limits import CONFIG_BYTES

if TYPE_CHECKING:
    from perdure.adapters.git.source import Target

NAME = "perdure.toml"


def place_of(target: Target, sha: str) -> Path | None:
    """A repository on this machine that has the commit; None when it would have to be fetched first."""
    from perdure.adapters.git.door import GitError
    from perdure.adapters.git.visit import find

    parts = urlsplit(target.url)
    local = Path(unquote(parts.path)) if parts.scheme == "file" else Path(target.url)
    for place in (local, target.checkout):
        if place is not None and place.is_absolute() and place.is_dir():
            with suppress(GitError, BadInput):
                found = find(place).git.run("cat-file", "-e", f"{sha}^{{commit}}", ok=(0, 1, 128))
                if found.returncode == 0:
                    return place
    return None


def file_at(place: Path, sha: str, path: str = NAME) -> str | None:
    """The text of a file at a commit that is there; None when it has no such file. BadInput when it is too long."""
    from perdure.adapters.git.repository import show
    from perdure.adapters.git.visit import find

    found = show(find(place).git, sha, path, CONFIG_BYTES)
    return found.decode(errors="replace") if found is not None else None


def in_working_tree(checkout: Path) -> str | None:
    """The perdure.toml that lies in a working tree. A link to a device or a pipe is none: reading it could wait."""
    path = checkout / NAME
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(CONFIG_BYTES + 1).decode(errors="replace")
    except OSError:
        return None


def read_config(path: Path) -> str:
    from perdure.adapters.system.bounded import read_text, why_unread

    try:
        return read_text(path, CONFIG_BYTES)
    except (OSError, ValueError) as error:
        what = f"the configuration cannot be read: {why_unread(error)}"
        raise BadInput(what, where=f"--config {path}", fix="name a TOML file") from None


def origin_of(cwd: Path) -> str | None:
    """The origin of the checkout that a directory is in, without asking it; None where there is none."""
    from perdure.adapters.git.visit import visiting

    found = visiting(cwd).run("remote", "get-url", "origin", ok=(0, 2, 128))
    return found.text if found.returncode == 0 else None

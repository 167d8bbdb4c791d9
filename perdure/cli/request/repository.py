"""Facts about a target repository that can be known here without fetching anything: whether a commit is on this
machine, its perdure.toml, its origin. Used by the checks of requests and by the commands about this host.

Adapters are imported where they are needed: loading them takes longer than finding a mistake in the options.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from perdure.models.config.repository import CONFIG_FILE
from perdure.models.errors import BadInput
from perdure.models.limits import CONFIG_BYTES

if TYPE_CHECKING:
    from perdure.adapters.git.target import TargetRepository


def find_local_repository(target: TargetRepository, sha: str) -> Path | None:
    """Return a repository on this machine that has the commit and its perdure.toml, if any; None when they would have
    to be fetched first, as from a partial clone."""
    from perdure.adapters.git.command import GitError
    from perdure.adapters.git.foreign_repository import find_repository

    parts = urlsplit(target.url)
    local = Path(unquote(parts.path)) if parts.scheme == "file" else Path(target.url)
    for path in (local, target.checkout):
        if path is not None and path.is_absolute() and path.is_dir():
            with suppress(GitError, BadInput):
                command = ("ls-tree", "--long", "--end-of-options", sha, CONFIG_FILE)  # the size of what is there
                output = find_repository(path).git.execute(*command, ok=(0, 128))
                if output.returncode == 0 and " BAD\t" not in output.text:
                    return path
    return None


def read_file_at_commit(repository: Path, sha: str) -> str | None:
    """Return the text of perdure.toml at a commit that the repository has; None when the commit has none.

    Raises BadInput when it is longer than CONFIG_BYTES, no text, or named in capitals.
    """
    from perdure.adapters.git.foreign_repository import find_repository
    from perdure.adapters.repository.config import read_committed_config

    return read_committed_config(find_repository(repository).git, sha)


def read_working_tree_config(checkout: Path) -> str | None:
    """Return the text of perdure.toml in a working tree; None where it cannot be read, or is no regular file.

    A link to a device or a pipe is not read: that could wait for ever. At most CONFIG_BYTES + 1 bytes are. Raises
    BadInput for what is longer or no text, and for a file whose name has capitals.
    """
    from perdure.adapters.repository.config import decode_config

    path, content, names = checkout / CONFIG_FILE, None, []
    with suppress(OSError):
        names = os.listdir(checkout)
        if path.is_file():
            with path.open("rb") as file:
                content = file.read(CONFIG_BYTES + 1)
        elif os.path.lexists(path):
            return None
    return decode_config(content, names, str(checkout))


def read_config(path: Path) -> str:
    """Return the text of the file that `--config` names. Raises BadInput for one that cannot be read, or over
    CONFIG_BYTES."""
    from perdure.adapters.system.bounded import read_text, unreadable_reason

    try:
        return read_text(path, CONFIG_BYTES)
    except (OSError, ValueError) as error:
        what = f"the configuration cannot be read: {unreadable_reason(error)}"
        raise BadInput(what, where=f"--config {path}", fix="name a TOML file") from None


def origin_url(cwd: Path) -> str | None:
    """Return the URL of the origin of the checkout that a directory is in, from its configuration; None without one."""
    from perdure.adapters.git.foreign_repository import foreign_git

    output = foreign_git(cwd).execute("remote", "get-url", "origin", ok=(0, 2, 128))
    return output.text if output.returncode == 0 else None

"""Names that are derived, never invented: delivery ids, branches, refs and keys."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable

DELIVERY_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,78}[a-z0-9])?")
"""The shape of a delivery id that we choose: safe as a directory, a ref component and a URL segment."""


SCHEDULED = re.compile(rf"({DELIVERY_ID.pattern})-(\d{{4}})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z")
"""The workflow id that a Temporal schedule makes: its own, and the time in UTC. Ids that we choose have no capitals."""


def slug(text: str, words: int = 4, limit: int = 32) -> str:
    """The first few words of a text in lower case, without accents, joined by dashes; `work` when no letter is left."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    found = re.findall(r"[a-z0-9]+", plain)
    return "-".join(found[:words])[:limit].strip("-") or "work"


def repository_name(repository: str) -> str:
    """The last path component of a URL or path, without `.git`: `https://github.com/me/durations.git` → `durations`."""
    last = re.split(r"[/:\\]", repository.rstrip("/\\"))[-1]
    return slug(last.removesuffix(".git"), words=6, limit=40)


def checkout_name(repository: str) -> str:
    """The directory `git clone` would make of a URL or path, of letters, digits, dots, dashes and underscores alone."""
    last = re.split(r"[/:\\]", repository.rstrip("/\\"))[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).strip(".-")[:80] or repository_name(repository)


def cache_name(checkout: str, *apart: str) -> str:
    """`<checkout>-<12 hex>`: the directory of one repository's packages; `apart` is all that tells it from others."""
    return f"{checkout}-{digest(*apart)[:12]}"


def delivery_id(repository: str, request: str, *apart: str) -> str:
    """`<repo>-<slug>-<4 hex>`; `apart` is what tells it from others whose names begin alike."""
    return f"{repository_name(repository)}-{slug(request)}-{digest(*apart)[:4]}"


def issue_delivery_id(repository: str, number: int) -> str:
    """`<repo>-issue-<n>`: the same for every submission of one issue, so that the second one finds the first."""
    return f"{repository_name(repository)}-issue-{number}"


def verification_id(delivery: str, entropy: str) -> str:
    """`<delivery>-verify-<4 hex>`: a small delivery that runs the tests of another one again; `entropy` as above."""
    return f"{delivery}-verify-{digest(delivery, entropy)[:4]}"


def is_verification(delivery: str) -> bool:
    return re.search(r"-verify-[0-9a-f]{4}$", delivery) is not None


def delivery_key(workflow_id: str) -> str:
    """The delivery id as a safe path and ref component: itself when it is one, else a slug and a hash.

    A delivery can be started with any workflow id (the Web UI's Start form), `../x` included. What a schedule has
    started is read by its day and hour: `night-20261123t2300-api-3f9c0a1b`.
    """
    if DELIVERY_ID.fullmatch(workflow_id):
        return workflow_id
    read = SCHEDULED.sub(r"\1-\2\3\4t\5\6", workflow_id, count=1)
    return f"{slug(read)}-{hashlib.sha256(workflow_id.encode()).hexdigest()[:8]}"


def newest_run(name: str, ids: Iterable[str]) -> str:
    """The first of what a schedule of this name has started: `night`, or of its items, `night/api`; empty without."""
    schedule, slash, item = name.partition("/")
    for id in ids:
        if (found := SCHEDULED.match(id)) and (found[1], id[found.end() :]) == (schedule, slash + item):
            return id
    return ""


def branch_name(delivery: str) -> str:
    """The branch a delivery ships: `perdure/<delivery>`."""
    return f"perdure/{delivery}"


def following(backlog: str, run_id: str) -> str:
    """The workflow that follows the stack which a run of a backlog has left."""
    return f"{backlog}/stack:{short_run(run_id)}"


def run_ref(delivery: str, run_id: str) -> str:
    """The hidden ref that holds one run's checkpoints."""
    return f"refs/perdure/{delivery}/{run_id}"


def artifact_ref(delivery: str, sha256: str) -> str:
    """The hidden ref that keeps one artifact (a blob) alive in the vault."""
    return f"refs/artifacts/{delivery}/{sha256}"


def digest(*parts: str) -> str:
    """A key of parts that cannot run into each other."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def short_run(run_id: str) -> str:
    """Enough of a run's id to tell it from the others of its delivery: each turn's input says it, and history is kept
    small. Its end: the beginning of a version 7 UUID is the time, the same for all that begin in one minute."""
    return run_id[-12:]

"""Names that are derived, never invented: ids of deliveries, of their verifications and stacks; keys, branches and
refs; digests. Also the names of workflow types and search attributes."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from perdure.text import is_text

DELIVERY_WORKFLOW, BACKLOG_WORKFLOW = "Delivery", "Backlog"
"""Workflow types."""

DELIVERY_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,78}[a-z0-9])?")
"""The shape of a delivery id that we choose: safe as a directory, a ref component and a URL segment."""


SCHEDULED_ID = re.compile(rf"({DELIVERY_ID.pattern})-(\d{{4}})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z")
"""The workflow id that a Temporal schedule makes: its own id, and the time in UTC. Ids that we choose have no
capitals."""


WORKFLOW_ID_BYTES = 1_000
"""Longest workflow id and task queue that Temporal takes (its limit `maxIDLength`); a command with a longer or an empty
one fails the workflow task that sends it."""


def is_workflow_id(text: str) -> bool:
    """Return whether Temporal takes a text as the id of a workflow."""
    return is_text(text) and 0 < len(text.encode()) <= WORKFLOW_ID_BYTES


def slug(text: str, max_words: int = 4, max_chars: int = 32) -> str:
    """Return the first words of a text, as far as letters and digits of ASCII go, in lower case without accents, joined
    by dashes; `work` when none is left."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    parts = re.findall(r"[a-z0-9]+", plain)
    return "-".join(parts[:max_words])[:max_chars].strip("-") or "work"


def repository_name(repository: str) -> str:
    """Return the last path component of a URL or path as a slug, without `.git`: `https://github.com/me/durations.git`
    → `durations`; `work` when nothing is left."""
    name = re.split(r"[/:\\]", repository.rstrip("/\\"))[-1]
    return slug(name.removesuffix(".git"), max_words=6, max_chars=40)


def checkout_name(repository: str) -> str:
    """Return the name of the directory that `git clone` would make of a URL or path; characters other than letters,
    digits, dots, dashes and underscores become dashes, and at most 80 are kept."""
    name = re.split(r"[/:\\]", repository.rstrip("/\\"))[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).strip(".-")[:80] or repository_name(repository)


def cache_name(checkout: str, *discriminators: str) -> str:
    """Return `<checkout>-<12 hex>`, the directory for one repository's packages; `discriminators` tell it from others
    of that name."""
    return f"{checkout}-{digest(*discriminators)[:12]}"


def delivery_id(repository: str, request: str, *discriminators: str) -> str:
    """Return `<repo>-<slug>-<4 hex>`; `discriminators` tell it from other deliveries whose names begin alike."""
    return f"{repository_name(repository)}-{slug(request)}-{digest(*discriminators)[:4]}"


def issue_delivery_id(repository: str, number: int) -> str:
    """Return `<repo>-issue-<n>`: the same for every submission of one issue, so that the second one finds the first."""
    return f"{repository_name(repository)}-issue-{number}"


def verification_id(delivery: str, entropy: str) -> str:
    """Return `<delivery>-verify-<4 hex>`, the id of a small delivery that runs the tests of another one again.

    `entropy` tells it from other verifications of that delivery.
    """
    return f"{delivery}-verify-{digest(delivery, entropy)[:4]}"


def is_verification(delivery: str) -> bool:
    """Return True for the id of a delivery that only runs the tests of another one again (see `verification_id`)."""
    return re.search(r"-verify-[0-9a-f]{4}$", delivery) is not None


def delivery_key(workflow_id: str) -> str:
    """Return a workflow id as a safe path and ref component: itself when it has the shape of a delivery id, else a slug
    of it and a hash.

    A delivery can be started with any workflow id (the Web UI's Start form), `../x` included. The key of what a
    schedule has started shows its day and hour: `night-20261123t2300-api-3f9c0a1b`.
    """
    if DELIVERY_ID.fullmatch(workflow_id):
        return workflow_id
    readable = SCHEDULED_ID.sub(r"\1-\2\3\4t\5\6", workflow_id, count=1)
    return f"{slug(readable)}-{hashlib.sha256(workflow_id.encode()).hexdigest()[:8]}"


def find_scheduled_workflow(name: str, ids: Iterable[str]) -> str:
    """Return the first of these workflow ids that a schedule of this name has started; empty when none is.

    name  of a schedule, `night`, or of an item of the backlogs it starts, `night/api`
    ids   the newest first, so that the newest one is found
    """
    schedule, slash, item = name.partition("/")
    for id in ids:
        if (match := SCHEDULED_ID.match(id)) and (match[1], id[match.end() :]) == (schedule, slash + item):
            return id
    return ""


def branch_name(delivery: str) -> str:
    """Return the branch a delivery ships: `perdure/<delivery>`."""
    return f"perdure/{delivery}"


def stack_workflow_id(backlog: str, run_id: str) -> str:
    """Return the id of the workflow that follows the stack of pull requests which a run of a backlog has left."""
    return f"{backlog}/stack:{short_run_id(run_id)}"


def run_ref(delivery: str, run_id: str) -> str:
    """Return the hidden ref that holds one run's checkpoints."""
    return f"refs/perdure/{delivery}/{run_id}"


def artifact_ref(delivery: str, sha256: str) -> str:
    """Return the hidden ref that keeps one artifact (a blob) alive in the vault."""
    return f"refs/artifacts/{delivery}/{sha256}"


def digest(*parts: str) -> str:
    """Return the SHA-256 of the parts, in hexadecimal, with a separator so that they cannot run into each other."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def short_run_id(run_id: str) -> str:
    """Return the last 12 characters of a run's id, enough to tell it from the other runs of its delivery.

    Each turn's input carries it, and history is kept small. The beginning of a version 7 UUID is the time, the same for
    all that begin in one minute.
    """
    return run_id[-12:]


SEARCH_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "PerdureRepository": "Keyword",
        "PerdurePhase": "Keyword",
        "PerdureStatus": "Keyword",
        "PerdureBranch": "Keyword",
        "PerdurePullRequest": "Keyword",
        "PerdureCostUsd": "Double",
    }
)
"""Name → Temporal's type. A server that does not know one hangs the workflow that sets it."""

CHANGE, WAITING, LABELS, TITLE = "PerdureChange", "PerdureWaiting", "PerdureLabels", "PerdureTitle"

MORE_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {CHANGE: "Keyword", WAITING: "Keyword", LABELS: "KeywordList", TITLE: "Keyword"}
)
"""Attributes of later releases: where a server does not accept them lists show less, and all else works."""

"""Admission of a request whose every field is valid: why it cannot be delivered all the same, and the search attributes
that its texts have to fit into. Workflows ask when they begin, the client and the command line before they send."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

from perdure.models.backlog.request import ITEM_ID_CHARS, BacklogRequest
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.limits import (
    CHILDREN_CHARS,
    KEYWORD_BYTES,
    KEYWORD_LIST_BYTES,
    LABELS_BYTES,
    PLACE_CHARS,
    TOKENS_MOST,
    USD_LEAST,
    WORKFLOW_ID_CHARS,
)
from perdure.models.phases import ALL_PHASES, Phase, invalid_phases_reason, unreachable_gate_reason
from perdure.text import shorten, valid_text

_NAME_FIELDS = ("repository", "base", "branch", "model", "agent")
"""Fields that name something on one line."""

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")

_DIGEST_CHARS = 16


def delivery_refusal(request: DeliveryRequest) -> str:
    """Return the reason why a request cannot be delivered, as `field: why`; empty: it can, as far as the request alone
    says.

    Where it names no phases, the repository's settings select them, and what depends on that is checked with those.
    """
    if reason := _first_text_reason(request) or _plan_reason(request) or amounts_refusal(request):
        return reason
    phases = request.phases if request.phases is not None else ALL_PHASES
    if problem := invalid_phases_reason(phases, request.branch):
        return f"phases: {problem}"
    return gates_refusal(request, phases)


def id_refusal(id: str, *, backlog: bool = False, scheduled: bool = False) -> str:
    """Return the reason why a workflow id is too long for a delivery or a backlog that somebody starts, or for the
    schedule that starts one; empty: it fits, and so do the ids of all that it will start."""
    longer = CHILDREN_CHARS + (len("/") + ITEM_ID_CHARS if backlog else 0)
    most = WORKFLOW_ID_CHARS - longer - (len("-2026-11-23T23:00:00Z") if scheduled else 0)
    return f"id: has {len(id)} characters, at most {most} fit" if len(id) > most else ""


def amounts_refusal(request: DeliveryRequest) -> str:
    """Return, as `field: why`, why a request cannot have the dollars or tokens it asks for; empty: it can. All else of
    a retry is as it was admitted."""
    if request.tokens is not None and request.tokens > TOKENS_MOST:
        return f"tokens: at most {TOKENS_MOST} can be asked for"
    if request.budget_usd is not None and request.budget_usd < USD_LEAST:
        return f"budget_usd: is {request.budget_usd:.15g}, the least is {USD_LEAST}"
    return ""


def gates_refusal(request: DeliveryRequest, phases: Sequence[Phase]) -> str:
    """Return, as `gates: why`, which gate of a request no delivery with these phases comes to; empty: all are reached.

    The planning of a backlog's item, which only makes items of it, has the gates of the whole backlog.
    """
    if request.landing is not None and (request.landing.decompose or request.parent_delivery is not None):
        return ""
    reason = unreachable_gate_reason(request.gates, phases, push=request.push)
    return f"gates: {reason}" if reason else ""


def backlog_refusal(request: BacklogRequest) -> str:
    """Return the reason why a backlog cannot be delivered, as `field: why`; empty: it can, as far as the request alone
    says. The labels of each item count together with the backlog's own, as its delivery has both."""
    if reason := _first_text_reason(request):
        return reason
    for index, item in enumerate(request.items):
        if reason := labels_refusal((*request.labels, *item.labels)):
            return f"items.{index}.{reason}"
    return ""


def labels_refusal(labels: Iterable[str]) -> str:
    """Return, as `labels: why`, the reason why these labels cannot be put on one delivery; empty: they can."""
    distinct = tuple(dict.fromkeys(labels))
    for label in distinct:
        if not label.strip() or _CONTROL_CHARACTER.search(label):
            return f"labels: {label!a} cannot be a label: it is blank, or has control characters"
    if (size := _list_bytes(distinct)) > LABELS_BYTES:
        return (
            f"labels: take {size} bytes together, at most {LABELS_BYTES} fit: "
            "a character takes 1, one that is not ASCII 6 or 12, and each label 3 more"
        )
    return ""


def fit_keyword(text: str) -> str:
    """Return a text as a search attribute of type Keyword holds it: as it is, or, where it has more than KEYWORD_BYTES,
    its beginning and a digest of the whole, so that equal texts stay equal and others stay different."""
    content = valid_text(text).encode()
    if len(content) <= KEYWORD_BYTES:
        return content.decode()
    suffix = f"…{sha256(content).hexdigest()[:_DIGEST_CHARS]}"
    return content[: KEYWORD_BYTES - len(suffix.encode())].decode(errors="ignore") + suffix


def fit_keywords(texts: Iterable[str]) -> tuple[str, ...]:
    """Return as many of the texts, from the first on, as a search attribute of type KeywordList holds, each once; one
    that does not fit any more is left out."""
    kept: tuple[str, ...] = ()
    for text in dict.fromkeys(map(fit_keyword, texts)):
        if _list_bytes((*kept, text)) <= KEYWORD_LIST_BYTES:
            kept += (text,)
    return kept


def _list_bytes(texts: Sequence[str]) -> int:
    """Return the bytes of a list as search attributes are stored: as JSON in ASCII."""
    return len(json.dumps(list(texts), separators=(",", ":")))


def _first_text_reason(request: DeliveryRequest | BacklogRequest) -> str:
    """Return, as `field: why`, the first of a request's names that cannot be one, or the reason against its labels."""
    for field in _NAME_FIELDS:
        text = str(getattr(request, field) or "")
        if _CONTROL_CHARACTER.search(text):
            return f"{field}: has control characters: {shorten(ascii(text), 80)}"
    if "\0" in (request.source or ""):
        return "source: has a NUL character, which no path has"
    if not request.repository.strip():
        return "repository: is blank: name a path or an address"
    if (size := len(request.repository.encode())) > PLACE_CHARS:
        return f"repository: is {size} bytes, at most {PLACE_CHARS} fit"
    return labels_refusal(request.labels)


def _plan_reason(request: DeliveryRequest) -> str:
    if request.plan is None:
        return ""
    if not request.plan.strip():
        return "plan: is blank: leave it out, and one is made"
    return "plan: phase plan makes one" if request.phases == (Phase.PLAN,) else ""

"""All cases, in the order of the table."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from tests.attack import (
    backlog_signals,
    branches,
    clients,
    exhausting,
    honest_agent,
    honest_peers,
    honest_words,
    inside,
    neighbours,
    page_texts,
    pages,
    peers,
    repository,
    setups,
    stranger,
    views,
)
from tests.attack.table import HELD, MISSED, Case, Ground, Seen, held


def _exhausting(name: str) -> Case:
    def attack(at: Ground) -> Seen:
        seen = at.once(_all_read).get(name)
        if seen is None:
            return Seen(MISSED, "the child that read it ran into its limit of time or memory")
        return Seen(HELD, seen if seen != "read" else "taken in part, within the limits")

    return Case("exhausting input", name, "refused, in words, within the limits", attack)


def _all_read(_: Ground) -> dict[str, str]:
    """All in one child: it takes longer to start than to read."""
    return exhausting.run()


def _peer(name: str) -> Case:
    def attack(_: Ground) -> Seen:
        if name in peers.MODEL:
            seen, words = peers.model_case(name), peers.MODEL[name][1]
            return held(seen.startswith(("ModelUnavailable", "ModelRefusesUs")) and words in seen, seen)
        answer, words = peers.FORGE[name]
        seen = peers.forge_case(answer, within_s=1.0, most=4 * 1024**2)
        return held(seen.startswith("ForgeUnavailable") and words in seen, seen)

    return Case("hostile peer", name, "given up, in words, within the limits", attack)


def _redirect(status: int) -> Case:
    def attack(_: Ground) -> Seen:
        seen, arrived = peers.redirected(status)
        return held(arrived == 0 and "sends us elsewhere" in seen, f"{arrived} requests arrived there; {seen}")

    return Case("hostile peer", f"a model answers {status} to get the conversation", "not followed", attack)


def _unvouched(at: Ground) -> Seen:
    seen = peers.unvouched(Path(tempfile.mkdtemp(dir=at.root)))
    return held("certificate verify failed" in seen and "SSL_CERT_FILE" in seen, seen)


def _no_tls(_: Ground) -> Seen:
    seen = peers.plain_for_tls()
    return held("TLS with https://127.0.0.1" in seen, seen)


_ALL: tuple[Case, ...] = (
    *repository.CASES,
    *branches.CASES,
    *inside.CASES,
    *views.CASES,
    *setups.CASES,
    *stranger.CASES,
    *clients.CASES,
    *backlog_signals.CASES,
    *neighbours.CASES,
    *pages.CASES,
    *page_texts.CASES,
    *map(_redirect, (301, 302, 303, 307, 308)),
    Case("hostile peer", "a model with a certificate nobody vouches for", "refused, host named", _unvouched),
    Case("hostile peer", "a model without TLS behind https", "said so", _no_tls),
    *map(_peer, (*peers.MODEL, *peers.FORGE)),
    *map(_exhausting, exhausting.CASES),
    *honest_agent.CASES,
    *honest_words.CASES,
    *honest_peers.CASES,
)

SHORT = frozenset(
    {
        "reads the host's /etc/shadow",
        "reads a key in the owner's ~/.ssh",
        "writes into another delivery's worktree",
        "connects to the host's loopback",
        "makes a user namespace",
        "leaves a daemon that outlives the command",
        "the checkout's configuration has a file system monitor",
        "the checkout's configuration has a directory of hooks",
        "the worktree's .git points to the attacker's",
        "reads a program's key in /proc/PID/environ",
    }
)
"""Cases that run with the tests, beside a stranger's; peers and exhausting input have tests of their own there."""

CASES = tuple(
    replace(case, short=case.group == stranger.GROUP or (case.group != "grade reduced" and case.name in SHORT))
    for case in _ALL
)

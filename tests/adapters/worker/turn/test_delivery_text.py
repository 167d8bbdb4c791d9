"""What people and programs read of a delivery, page by page."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import datetime

import pytest
from turn_fixtures import DELIVERY, Bench

from perdure.adapters.git.checkpoint import snapshot_worktree
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.turn.delivery_text import (
    ARTIFACT_PAGE_BYTES,
    PAGE_CHARS,
    TURN_SAID_CHARS,
    TURNS_PAGE_CHARS,
    delivery_page,
)
from perdure.cli.look.logs import turns_of_step
from perdure.models.delivery.turn import TURN_BEGINS, TextPage, VaultReadInput
from perdure.models.errors import BadInput, WorkspaceLost

PAYLOAD = 64 * 1024


def vault(bench: Bench) -> Vault:
    return Workspace.open(bench.host.home, DELIVERY).vault


def pages(bench: Bench, what: str, checkpoint: str = "") -> list[TextPage]:
    """All of them; each offset as the page before named it."""
    record = Workspace.open(bench.host.home, DELIVERY).record()
    found, offset = [], 0
    while True:
        work = VaultReadInput(delivery=DELIVERY, what=what, offset=offset, checkpoint=checkpoint)
        found.append(delivery_page(vault(bench), record, work))
        if (then := found[-1].next) is None:
            return found
        assert then > offset
        offset = then


async def test_an_artifact_of_any_bytes_arrives_as_it_was_in_pages_below_64_kib(bench: Bench) -> None:
    for size in (0, 1, ARTIFACT_PAGE_BYTES, ARTIFACT_PAGE_BYTES + 1, 200_000):
        data = hashlib.shake_256(b"seed").digest(size)
        sha256 = vault(bench).put_artifact(DELIVERY, data)
        read = pages(bench, "artifact64", sha256)
        assert b"".join(base64.b64decode(page.text) for page in read) == data, size
        assert len(read) == max(1, -(-size // ARTIFACT_PAGE_BYTES))
        assert max(len(page.model_dump_json()) for page in read) < PAYLOAD

    text = "ä€" * PAGE_CHARS
    read = pages(bench, "artifact", vault(bench).put_artifact(DELIVERY, text.encode()))
    assert "".join(page.text for page in read) == text
    assert len(read) == 2, "a text is paged by characters"

    with pytest.raises(WorkspaceLost, match="is not in the vault"):
        pages(bench, "artifact64", "0" * 64)
    with pytest.raises(BadInput, match="cannot be read"):
        pages(bench, "secrets")


async def test_each_turn_is_told_once_with_what_was_done_in_it_and_in_no_other(bench: Bench) -> None:
    checkpoint, taken = bench.prepared.checkpoint, []
    for turn in range(1, 5):
        taken.append(await bench.take(bench.work(turn, checkpoint)))
        checkpoint = taken[-1].checkpoint
    (page,) = pages(bench, "turns_json")
    told = [json.loads(line) for line in page.text.splitlines()]
    assert [turn["checkpoint"] for turn in told] == [result.checkpoint for result in taken]
    assert [(turn["step"], turn["attempt"], turn["turn"]) for turn in told] == [
        ("implement", 1, n) for n in range(1, 5)
    ]
    assert told[0]["said"].lstrip().startswith('▸ read {"path": "calc.py"}')
    assert "▸ read" not in told[1]["said"]
    assert "written" in told[1]["said"]
    assert told[3]["said"].strip().startswith("Add sub")
    (early,) = pages(bench, "turns_json", taken[1].checkpoint)
    assert len(early.text.splitlines()) == 2
    (log,) = pages(bench, "logs")
    begun = [line for line in log.text.splitlines() if line.startswith(TURN_BEGINS)]
    made = [datetime.strptime(line[len(TURN_BEGINS) :][:23], "%Y-%m-%d %H:%M:%S %Z") for line in begun]
    assert sorted(made) == made
    assert [line.split("  ")[2] for line in begun] == ["implement"] * 4
    assert list(turns_of_step(log.text.splitlines(), "implement")) == log.text.splitlines()
    assert list(turns_of_step(log.text.splitlines(), "plan")) == []


async def test_many_turns_come_in_pages_and_a_long_one_is_cut(bench: Bench) -> None:
    noise = "n" * (TURN_SAID_CHARS * 10)
    workspace, parent = Workspace.open(bench.host.home, DELIVERY), bench.prepared.checkpoint
    transcript = [{"role": "user", "content": "the opening"}]
    for turn in range(1, 21):
        transcript = [*transcript, {"role": "assistant", "content": f"{turn} {noise}"}]
        told = {"step": "implement", "attempt": 1, "turn": turn, "result": {"summary": f"turn {turn}"}}
        parent = snapshot_worktree(workspace, parent=parent, turn=told, transcript=transcript, changed=False)
    read = pages(bench, "turns_json", parent)
    told = [json.loads(line) for page in read for line in page.text.splitlines()]
    assert [turn["said"].split()[0] for turn in told] == [str(turn) for turn in range(1, 21)]
    assert all(len(turn["said"]) < TURN_SAID_CHARS + 10 for turn in told)
    assert len(read) == -(-20 // (TURNS_PAGE_CHARS // (TURN_SAID_CHARS + 200)))
    assert max(len(page.model_dump_json()) for page in read) < PAYLOAD

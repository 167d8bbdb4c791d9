"""A step's first message shows the repository; people and programs read the delivery's text."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import datetime

import pytest
from turn_fixtures import DELIVERY, Bench, vault

from perdure.adapters.agents.builtin.repository_map import MAP_FILE_BYTES
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.checkpoint import snapshot_worktree
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.turn.delivery_text import (
    ARTIFACT_PAGE_BYTES,
    TURN_SAID_CHARS,
    TURNS_PAGE_CHARS,
    delivery_page,
)
from perdure.adapters.worker.turn.materials import map_material
from perdure.cli.look.logs import turns_of_step
from perdure.models.delivery.turn import PAGE_CHARS, PAGE_CHARS_MOST, TURN_BEGINS, TextPage, VaultReadInput
from perdure.models.errors import BadInput, WorkspaceLost
from perdure.models.phases import Step

PAYLOAD = 64 * 1024


def vault_of_text(bench: Bench) -> Vault:
    return Workspace.open(bench.host.home, DELIVERY).vault


def pages(bench: Bench, what: str, checkpoint: str = "", chars: int = PAGE_CHARS) -> list[TextPage]:
    """All of them; each offset as the page before named it."""
    record = Workspace.open(bench.host.home, DELIVERY).record()
    found, offset = [], 0
    while True:
        work = VaultReadInput(delivery=DELIVERY, what=what, offset=offset, checkpoint=checkpoint, chars=chars)
        found.append(delivery_page(vault_of_text(bench), record, work))
        if (then := found[-1].next) is None:
            return found
        assert then > offset
        offset = then


async def test_an_artifact_of_any_bytes_arrives_as_it_was_in_pages_below_64_kib(bench: Bench) -> None:
    for size in (0, 1, ARTIFACT_PAGE_BYTES, ARTIFACT_PAGE_BYTES + 1, 200_000):
        data = hashlib.shake_256(b"seed").digest(size)
        sha256 = vault_of_text(bench).put_artifact(DELIVERY, data)
        read = pages(bench, "artifact64", sha256)
        assert b"".join(base64.b64decode(page.text) for page in read) == data, size
        assert len(read) == max(1, -(-size // ARTIFACT_PAGE_BYTES))
        assert max(len(page.model_dump_json()) for page in read) < PAYLOAD

    text = "ä€" * PAGE_CHARS
    read = pages(bench, "artifact", vault_of_text(bench).put_artifact(DELIVERY, text.encode()))
    assert "".join(page.text for page in read) == text
    assert len(read) == 2, "a text is paged by characters"
    text = "\u0001€" * (PAGE_CHARS_MOST // 2)
    read = pages(bench, "artifact", vault_of_text(bench).put_artifact(DELIVERY, text.encode()), PAGE_CHARS_MOST)
    assert [page.text for page in read] == [text], "in one, as a reader of much asks for"
    assert len(read[0].model_dump_json().encode()) < 2_000_000, "which a server takes"

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


def opening(bench: Bench, call: int = -1) -> str:
    body = bench.rehearsal.calls[call].body
    return "\n".join(block["text"] for block in body["messages"][0]["content"])


async def test_a_plan_and_a_build_begin_with_a_map_and_the_tests_time_and_verdict_on_the_base(bench: Bench) -> None:
    for step in (Step.PLAN, Step.IMPLEMENT):
        await bench.take(bench.work(1, bench.prepared.checkpoint, step), run=str(step))
        said = opening(bench)
        assert '<data name="repository"' in said
        assert "  calc.py: add()" in said
        assert "  test_calc.py: AddTest(" in said
        tests = next(line for line in said.splitlines() if line.startswith("- ") and "unittest" in line)
        assert "(passed on main in " in tests
    await bench.take(bench.work(1, bench.prepared.checkpoint, Step.CLASSIFY), run="classify")
    assert '<data name="repository"' not in opening(bench)


async def test_a_turn_that_is_done_again_shows_the_same_bytes_and_is_not_paid_twice(bench: Bench) -> None:
    work = bench.work(1, bench.prepared.checkpoint)
    await bench.take(work)
    calls = len(bench.rehearsal.calls)
    vault(bench).git.execute("update-ref", "-d", f"refs/perdure/{DELIVERY}/run-1")
    (bench.host.home.tree(DELIVERY) / "calc.py").write_text("def other(): ...\n")
    other = bench.again()
    await bench.take(work, host=other)
    await other.close()
    assert len(bench.rehearsal.calls) == calls


async def test_the_map_is_of_the_checkpoint_and_shows_nothing_that_lies_beside_it(bench: Bench) -> None:
    tree = bench.host.home.tree(DELIVERY)
    (tree / ".env").write_text("SECRET=1")
    (tree / "later.py").write_text("def later(): ...")
    (tree / "away.py").symlink_to("/etc/passwd")
    found = map_material(vault(bench), bench.prepared.checkpoint, Step.PLAN)["repository"]
    assert "calc.py: add()" in found
    assert not any(word in found for word in ("later", ".env", "away"))


async def test_what_a_turn_wrote_is_in_the_next_steps_map_but_links_and_large_files_names_are_not(bench: Bench) -> None:
    line = next(line for line in bench.rehearsal.screenplay.lines if line.use and line.use[0].tool == "bash")
    large = f"python3 -c \"print('def large(): ...' + ' ' * {MAP_FILE_BYTES})\" > large.py"
    line.use[0].input["command"] = f"echo 'def new(): ...' > new.py; ln -s /etc/passwd away.py; {large}"
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    second = await bench.take(bench.work(2, first.checkpoint))
    found = map_material(vault(bench), second.checkpoint, Step.REVIEW)["repository"]
    assert "  new.py: new()" in found
    assert "large.py" in found
    assert "large()" not in found
    assert "away" not in found
    told = checkpoints.read_transcript(vault(bench), second.checkpoint)
    assert "new()" not in json.dumps(told[0]), "a conversation keeps the map that it began with"

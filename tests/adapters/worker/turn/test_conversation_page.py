"""Turns as the page shows them, from real checkpoints."""

from __future__ import annotations

import json

from turn_fixtures import DELIVERY, Bench, bench

from perdure.adapters.git.checkpoint import snapshot_worktree
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.turn.conversation import BLOCK_CHARS, PAGE_TURNS, TURN_CHARS
from perdure.adapters.worker.turn.delivery_text import delivery_page
from perdure.models.delivery.conversation import ConversationTurn
from perdure.models.delivery.turn import PAGE_CHARS, PAGE_CHARS_MOST, VaultReadInput

__all__ = ["bench"]


def read(bench: Bench, checkpoint: str, chars: int = PAGE_CHARS) -> list[ConversationTurn]:
    workspace = Workspace.open(bench.host.home, DELIVERY)
    work = VaultReadInput(delivery=DELIVERY, what="conversation", checkpoint=checkpoint, chars=chars)
    text = delivery_page(workspace.vault, workspace.record(), work).text
    return [ConversationTurn.model_validate_json(line) for line in text.split("\n")]


async def test_each_call_has_its_output_and_the_turn_the_change_that_it_made(bench: Bench) -> None:
    checkpoint = bench.prepared.checkpoint
    taken = [checkpoint := (await bench.take(bench.work(turn, checkpoint))).checkpoint for turn in (1, 2, 3, 4)]
    shown = read(bench, checkpoint)
    assert [turn.checkpoint for turn in shown] == taken[::-1]
    said, tested, written, looked = shown
    assert [(block.tool, block.arguments) for block in looked.blocks] == [
        ("read", "calc.py"),
        ("read", "tests/test_calc.py"),
    ]
    assert "def add" in looked.blocks[0].output
    assert (looked.diff, looked.changed, looked.all_changed) == ("", (), ())
    (call,) = written.blocks
    assert (call.tool, call.failed, "written" in call.output) == ("bash", False, True)
    assert call.arguments.startswith("printf")
    assert "+def sub(a, b):" in written.diff
    assert written.changed == tested.all_changed == ("calc.py",)
    assert (tested.changed, said.blocks[0].text) == ((), "Add sub\n\nBeside add.")


async def test_each_call_that_writes_a_file_has_its_own_change(bench: Bench) -> None:
    workspace, checkpoint = Workspace.open(bench.host.home, DELIVERY), bench.prepared.checkpoint
    before = (bench.host.home.tree(DELIVERY) / "calc.py").read_text()
    inputs = [
        ("edit", {"path": "calc.py", "old": "a + b\n", "new": "b + a\n"}),
        ("Edit", {"file_path": "calc.py", "old_string": "x\ny\nz", "new_string": "x\nw\nz", "replace_all": True}),
        ("write", {"path": "calc.py", "content": before + "# the end\n"}),
        ("write", {"path": "calc.py", "content": before + "# the very end\n"}),
        ("write", {"path": "new.py", "content": "one\ntwo\n"}),
        ("write", {"path": "refused.py", "content": "x"}),
        ("write", {"path": "no\0name\udc00", "content": "x"}),
        ("write", {"path": "long.py", "content": "line\n" * 10_000}),
        ("bash", {"command": "true"}),
    ]
    calls = [{"type": "tool_use", "id": str(n), "name": one, "input": given} for n, (one, given) in enumerate(inputs)]
    results = [{"type": "tool_result", "tool_use_id": "5", "content": "no", "is_error": True}]
    transcript = [
        {"role": "user", "content": "the opening"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
    ]
    told = {"step": "implement", "attempt": 1, "turn": 1, "result": {"summary": ""}}
    (turn,) = read(
        bench, snapshot_worktree(workspace, parent=checkpoint, turn=told, transcript=transcript, changed=True)
    )
    edit, theirs, whole, again, new, refused, nameless, long, command = turn.blocks
    assert edit.change.splitlines() == ["--- calc.py", "+++ calc.py", "@@", "-a + b", "+b + a"]
    assert theirs.change.splitlines()[3:] == [" x", "-y", "+w", " z"]
    assert whole.change.splitlines()[3:] == [*(f" {line}" for line in before.splitlines()[-3:]), "+# the end"]
    assert again.change.splitlines()[-2:] == ["-# the end", "+# the very end"], "after the call before it"
    assert new.change.splitlines()[3:] == ["+one", "+two"]
    assert (refused.change, nameless.change, command.change) == ("", "", "")
    assert (edit.arguments, whole.arguments, command.arguments) == ("calc.py", "calc.py", "true")
    assert "content" in refused.arguments
    assert len(long.change) <= BLOCK_CHARS + 2


async def test_five_megabytes_of_output_and_of_change_are_cut_where_they_are(bench: Bench) -> None:
    workspace, checkpoint = Workspace.open(bench.host.home, DELIVERY), bench.prepared.checkpoint
    noise = "n" * 5_000_000
    command, result = {"command": noise[:50_000]}, {"content": noise, "is_error": True}
    calls = [{"type": "tool_use", "id": str(n), "name": "x", "input": command} for n in range(20)]
    results = [{"type": "tool_result", "tool_use_id": "0", **result}]
    transcript = [
        {"role": "user", "content": "the opening"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": [*results, {"type": "text", "text": "mind the time"}]},
    ]
    (bench.host.home.tree(DELIVERY) / "large.txt").write_text("line\n" * 1_000_000)
    told = {"step": "implement", "attempt": 1, "turn": 1, "result": {"summary": ""}}
    checkpoint = snapshot_worktree(workspace, parent=checkpoint, turn=told, transcript=transcript, changed=True)
    (turn,) = read(bench, checkpoint)
    assert len(turn.model_dump_json()) < 2 * TURN_CHARS
    assert (len(turn.blocks), turn.omitted) == (3, 18)
    assert turn.blocks[0].failed
    assert len(turn.blocks[0].output) == BLOCK_CHARS
    assert "characters left out" in turn.blocks[0].output
    assert turn.changed == ("large.txt",)


async def test_a_page_has_the_newest_turns_and_the_one_before_them_begins_the_next(bench: Bench) -> None:
    workspace, checkpoint = Workspace.open(bench.host.home, DELIVERY), bench.prepared.checkpoint
    transcript = [{"role": "user", "content": "the opening"}]
    commits = []
    for number in range(1, PAGE_TURNS + 6):
        transcript = [*transcript, {"role": "assistant", "content": f"{number} said"}]
        told = {"step": "implement", "attempt": 1, "turn": number, "result": {"summary": ""}}
        checkpoint = snapshot_worktree(workspace, parent=checkpoint, turn=told, transcript=transcript, changed=False)
        commits.append(checkpoint)
    newest, before = read(bench, checkpoint, PAGE_CHARS_MOST), read(bench, commits[4], PAGE_CHARS_MOST)
    assert [turn.checkpoint for turn in (*newest, *before)] == commits[::-1]
    assert [turn.blocks[0].text for turn in before] == [f"{n} said" for n in (5, 4, 3, 2, 1)]
    assert [turn.checkpoint for turn in read(bench, checkpoint, 1)] == [checkpoint], "one at least"


async def test_no_text_of_a_model_or_a_tool_makes_a_turn_unreadable(bench: Bench) -> None:
    workspace = Workspace.open(bench.host.home, DELIVERY)
    nested = json.loads("[" * 900 + "]" * 900)
    calls = [
        {"type": "text", "text": "a\u2028b\x85c \udc00"},
        {"type": "tool_use", "id": "1", "name": "x\ud800", "input": {"half": "\udc00", "deep": nested}},
    ]
    results = [{"type": "tool_result", "tool_use_id": "1", "content": "o\u2029ut \ud8ff"}]
    transcript = [
        {"role": "user", "content": "the opening"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
    ]
    told = {"step": "implement", "attempt": 1, "turn": 1, "result": {"summary": ""}}
    parent = bench.prepared.checkpoint
    (turn,) = read(bench, snapshot_worktree(workspace, parent=parent, turn=told, transcript=transcript, changed=False))
    text, call = turn.blocks
    assert text.text.startswith("a\u2028b\x85c")
    assert (call.tool, call.output) == ("x?", "o\u2029ut ?")

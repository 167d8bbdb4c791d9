from __future__ import annotations

import base64
import hashlib
import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.adapters.agents.builtin.conversation import count_identical_calls
from perdure.adapters.agents.builtin.model_request import COMPACTION, ModelRequest, canonical_json
from perdure.adapters.agents.builtin.progress import _collect_turns, find_circle, may_be_in_circle
from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git import messages as stored
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.models.config.repository import TestCommand
from tests.costs import examples

TESTS = (TestCommand(command="pytest -q"),)
PERSON = 'A person in charge of this delivery says:\n<person mark="x">\nGo on.\n</person mark="x">'
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 800, 600) + bytes(40)).decode()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
OPENING = {"role": "user", "content": [{"type": "text", "text": "Add sub – übermorgen"}]}

Messages = list[dict[str, Any]]


def turn_of(number: int, command: str, result: str, extra: str) -> Messages:
    call = {"type": "tool_use", "id": f"t{number}", "name": "bash", "input": {"z": 1, "command": command}}
    content: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": f"t{number}", "content": result}]
    content += {"": [], "person": [{"type": "text", "text": PERSON}], "image": [IMAGE]}[extra]
    said = [{"type": "text", "text": ""}] if number % 2 else []
    return [{"role": "assistant", "content": [*said, call]}, {"role": "user", "content": content}]


def edited(message: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a copy of a message with another command, result or text."""
    fields = {"tool_use": {"input": {"command": text}}, "tool_result": {"content": text}, "text": {"text": text}}
    return {**message, "content": [{**block, **fields.get(block["type"], {})} for block in message["content"]]}


def request(messages: Sequence[dict[str, Any]], **more: Any) -> ModelRequest:
    return ModelRequest("claude-sonnet-5-5", 1000, "high", "Step: implement", (), tuple(messages), None, **more)


def answers(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """Return all that a turn computes of its conversation, as JSON can hold it."""
    trees = [f"tree {len(messages) // 3}"] * (len(messages) // 2 + 1)
    asked = [request(messages), request(messages, hour=True, after="msg_1"), request(messages, compact=True)]
    computed = [[one.body().decode(), one.key(), one.prompt_bytes] for one in asked]
    turns = str(_collect_turns(messages, trees, TESTS))
    return [
        computed,
        turns,
        str(find_circle(messages, trees, TESTS)),
        may_be_in_circle(messages, TESTS),
        count_identical_calls(messages),
    ]


def written(workspace: Workspace, messages: Messages, parent: str | None) -> str:
    return cp.snapshot_worktree(workspace, parent=parent, turn={"turn": 1}, transcript=messages, changed=False)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a new process does."""
    monkeypatch.setattr(stored, "_KEPT", stored._KeptMessages())


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("grow"),
            st.sampled_from(["pytest -q", "ls", "cat ü"]),
            st.sampled_from(["1 failed in 0.25 s", "2 failed in 7 s", "– ok\n"]),
            st.sampled_from(["", "", "", "person", "image"]),
        ),
        st.tuples(st.just("edit"), st.integers(0, 40), st.sampled_from(["pytest -q x", "1 failed in 3 s"])),
        st.tuples(st.just("cut"), st.integers(1, 12)),
        st.tuples(st.just("new process")),
    ),
    min_size=5,
    max_size=15,
)


@pytest.mark.timeout(120)
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_what_is_kept_of_a_conversation_is_what_would_be_computed_of_it_anew(
    workspace: Workspace, steps: list[tuple[Any, ...]]
) -> None:
    """Grown, edited, cut off and read by a new process, in any order."""
    told: Messages = [OPENING]
    commit = cp.snapshot_worktree(workspace, parent=None, turn={"turn": 0}, transcript=told)
    for number, (kind, *how) in enumerate(steps):
        if kind == "grow":
            told = [*told, *turn_of(number, *how)]
        elif kind == "edit":
            at = how[0] % len(told)
            told = [*told[:at], edited(told[at], how[1]), *told[at + 1 :]]
        elif kind == "cut":
            told = told[: max(1, len(told) - how[0])]
        else:
            stored._KEPT = stored._KeptMessages()
        read = cp.read_transcript(workspace.vault, commit)
        shared = sum(one == two for one, two in zip(read, told, strict=False))
        commit = written(
            workspace, [*read[:shared], *told[shared:]] if read[:shared] == told[:shared] else told, commit
        )
        read = cp.read_transcript(workspace.vault, commit)
        assert read == told
        assert answers(read) == answers(told)
        assert answers(read) == answers(told), "computed of what is kept"


def test_a_new_process_computes_the_same(workspace: Workspace) -> None:
    told = [OPENING, *(message for n in range(9) for message in turn_of(n, "pytest -q", f"1 failed in {n} s", ""))]
    commit = cp.snapshot_worktree(workspace, parent=None, turn={"turn": 0}, transcript=told)
    script = (
        "import json, sys; from pathlib import Path; from perdure.adapters.git.checkpoint import read_transcript; "
        "from perdure.adapters.git.vault import Vault; from tests.adapters.git.test_messages import answers; "
        "print(json.dumps(answers(read_transcript(Vault.open_existing(Path(sys.argv[1])), sys.argv[2]))))"
    )
    script = script.replace("tests.adapters.git.test_messages", "test_messages")
    path = str(cp.Path(__file__).parent)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); {script}", str(workspace.vault.path)]
    printed = subprocess.run([*command, commit], check=True, capture_output=True, timeout=60).stdout
    assert json.loads(printed) == json.loads(json.dumps(answers(cp.read_transcript(workspace.vault, commit))))


def test_a_request_has_the_key_and_the_bound_that_earlier_releases_gave_it() -> None:
    """Replies are stored by the key: an upgrade in the middle of a turn must find what was bought."""
    told = [OPENING, *turn_of(1, "ls", "ü – \ud83d\ude00", ""), *turn_of(2, "ls", "0", ""), *turn_of(3, "ls", "1", "")]
    for more in ({}, {"hour": True}, {"compact": True}):
        asked = request(told, **more)
        body = json.loads(asked.body())
        assert body.pop("stream") is True
        body |= {"betas": [COMPACTION]} if "compact" in more else {}
        assert asked.key() == hashlib.sha256(canonical_json(body)).hexdigest()
        body.pop("betas", None)
        assert asked.prompt_bytes == len(json.dumps(body, ensure_ascii=False).encode())


def test_only_the_newest_messages_are_kept_up_to_a_limit(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "KEPT_BYTES", 1000)
    told = [{"role": "user", "content": [{"type": "text", "text": f"{n} {'x' * 300}"}]} for n in range(8)]
    commit = cp.snapshot_worktree(workspace, parent=None, turn={"turn": 0}, transcript=told)
    assert cp.read_transcript(workspace.vault, commit) == told
    assert cp.read_transcript(workspace.vault, commit) == told
    assert stored._KEPT._bytes == sum(one.size for one in stored._KEPT._messages.values()) <= 1000


def test_the_vault_of_another_repository_keeps_its_own(workspace: Workspace, vault: Vault) -> None:
    commit = written_once(workspace)
    [read] = cp.read_transcript(vault, commit)
    assert cp.read_transcript(vault, commit)[0] is read
    moved = workspace.vault.path.rename(workspace.vault.path.with_name("moved.git"))
    assert cp.read_transcript(Vault(moved, vault.url), commit)[0] is not read


def written_once(workspace: Workspace) -> str:
    return cp.snapshot_worktree(workspace, parent=None, turn={"turn": 0}, transcript=[OPENING])

"""A delivery as text for people: turn by turn from the checkpoints, changes as a diff, artifacts as they are."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from perdure.adapters.git.checkpoint import read_transcript, read_turn
from perdure.adapters.git.record import WorkspaceRecord
from perdure.adapters.git.vault import Vault
from perdure.models.errors import BadInput
from perdure.models.ids import branch_name
from perdure.models.turn import TURN_BEGINS, Page, ReadInput

PAGE_CHARS = 16_000
"""Of a log or diff in one read: at most 64 KiB, whatever the characters."""

ARTIFACT_PAGE_BYTES = 45_000
"""Of an artifact that is read through Temporal: 60,000 characters in base64, below 64 KiB with what is around them."""

TURNS_PAGE_CHARS = 48_000
TURN_SAID_CHARS = 4_000
"""Of what a turn said and did, in a report: a screen; `perdure logs` has the rest. A page holds a dozen of them."""


_SHOWN_LINES = 20
"""Of one tool result in `logs`; the whole of it is in the transcript."""


def page_of(vault: Vault, record: WorkspaceRecord, work: ReadInput) -> Page:
    """One page of it, at most 64 KiB: of `turns_json` a JSON line a turn, of `artifact64` bytes in base64, otherwise
    text. `offset` counts checkpoints, bytes or characters."""
    if work.what == "turns_json":
        return _turns_page(vault, work)
    if work.what == "artifact64":
        data = vault.get_artifact(work.delivery, work.checkpoint)
        end = work.offset + ARTIFACT_PAGE_BYTES
        text = base64.b64encode(data[work.offset : end]).decode()
        return Page(text=text, next=end if end < len(data) else None)
    whole = text_of(vault, record, work)
    text = whole[work.offset : work.offset + PAGE_CHARS]
    end = work.offset + len(text)
    return Page(text=text, next=end if end < len(whole) else None)


def text_of(vault: Vault, record: WorkspaceRecord, work: ReadInput) -> str:
    """`turns` (a line each), `logs` (what was said and done), `diff`, or the artifact whose hash `checkpoint` names."""
    if work.what == "diff":
        head = vault.read_ref(f"refs/heads/{branch_name(work.delivery)}")
        return vault.diff(vault.merge_base(record.base_sha, head), head) if head else ""
    if work.what == "artifact":
        return vault.get_artifact(work.delivery, work.checkpoint).decode(errors="replace")
    if work.what == "turns":
        return "\n".join(_line(*one) for one in _turns(vault, work))
    if work.what == "logs":
        return "\n".join(_log(vault, work))
    raise BadInput(f"{work.what!r} cannot be read", fix="one of turns, turns_json, logs, diff, artifact, artifact64")


def _turns_page(vault: Vault, work: ReadInput) -> Page:
    """Each turn with what was said and done in it, cut at TURN_SAID_CHARS; only the page's own checkpoints are read."""
    commits, size = _commits(vault, work), 0
    lines: list[str] = []
    for place, (commit, _) in enumerate(commits[work.offset :], work.offset):
        turn = read_turn(vault, commit)
        if "turn" not in turn:
            continue
        line = json.dumps(_entry(vault, commits[place - 1][0] if place else "", commit, turn))
        if lines and size + len(line) > TURNS_PAGE_CHARS:
            return Page(text="\n".join(lines), next=place)
        lines.append(line)
        size += len(line) + 1
    return Page(text="\n".join(lines))


def _entry(vault: Vault, before: str, commit: str, turn: dict[str, Any]) -> dict[str, Any]:
    seen = 1 if turn["turn"] == 1 or not before else len(read_transcript(vault, before))
    said, room = [], TURN_SAID_CHARS
    for line in (line for message in read_transcript(vault, commit)[seen:] for line in _message(message)):
        said.append(line[:room])
        room -= len(line) + 1
        if room <= 0:
            said.append("…")
            break
    result = turn["result"]
    facts = {name: turn[name] for name in ("step", "attempt", "turn")}
    return {"checkpoint": commit, **facts, "summary": result.get("summary", ""), "said": "\n".join(said)}


def _turns(vault: Vault, work: ReadInput) -> Iterator[tuple[str, datetime, dict[str, Any]]]:
    """Checkpoints of the newest run, oldest first, and when each was made; that of prepare is no turn."""
    for commit, made in _commits(vault, work):
        turn = read_turn(vault, commit)
        if "turn" in turn:
            yield commit, made, turn


def _commits(vault: Vault, work: ReadInput) -> list[tuple[str, datetime]]:
    """All checkpoints up to the one that is named, or to the newest, oldest first."""
    if not (tip := work.checkpoint or _newest(vault, work.delivery)):
        return []
    listed = vault.git.text("rev-list", "--first-parent", "--timestamp", "--end-of-options", tip).splitlines()
    found = [line.split() for line in reversed(listed)]
    return [(commit, datetime.fromtimestamp(int(made), UTC)) for made, commit in found]


def _newest(vault: Vault, delivery: str) -> str:
    """The tip of the run that was worked on last."""
    prefix = f"refs/perdure/{delivery}/"
    return vault.git.text(
        "for-each-ref", "--sort=-committerdate", "--count=1", "--format=%(objectname)", prefix
    ).strip()


def _line(commit: str, made: datetime, turn: dict[str, Any]) -> str:
    """`2026-05-04 14:02:11 UTC  3f9c1d2a4b  implement 2  turn 3 · edit calc.py`."""
    attempt = f" {turn['attempt']}" if turn["attempt"] > 1 else ""
    return f"{made:%Y-%m-%d %H:%M:%S} UTC  {commit[:10]}  {turn['step']}{attempt}  {turn['result'].get('summary', '')}"


def _log(vault: Vault, work: ReadInput) -> Iterator[str]:
    seen = 0
    for commit, made, turn in _turns(vault, work):
        messages = read_transcript(vault, commit)
        if turn["turn"] == 1:
            seen = 1  # the opening message is the request and its materials: shown elsewhere
        yield f"{TURN_BEGINS}{_line(commit, made, turn)}"
        for message in messages[seen:]:
            yield from _message(message)
        seen = len(messages)
        yield ""


def _message(message: dict[str, Any]) -> Iterator[str]:
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for block in content:
        kind = block.get("type")
        if kind == "text" and block["text"].strip():
            yield from _indented(block["text"])
        elif kind == "tool_use":
            arguments = json.dumps(block["input"], ensure_ascii=False)
            yield f"  ▸ {block['name']} {arguments if len(arguments) < 300 else arguments[:300] + '…'}"
        elif kind == "tool_result":
            yield from _indented(_result(block), "    ")


def _result(block: dict[str, Any]) -> str:
    content = block.get("content", "")
    if isinstance(content, list):
        content = "\n".join(part.get("text", "") for part in content)
    return ("! " if block.get("is_error") else "") + str(content)


def _indented(text: str, by: str = "  ") -> Iterator[str]:
    lines = text.splitlines()
    for line in lines[:_SHOWN_LINES]:
        yield by + line
    if len(lines) > _SHOWN_LINES:
        yield f"{by}… {len(lines) - _SHOWN_LINES} more lines"

"""A delivery as text for people, read from the vault for `perdure logs` and what else shows turns, diffs and artifacts:
turn by turn from the checkpoints, changes as a diff, artifacts as they are, in pages that fit into Temporal's payloads.
Used by the activity that answers such reads."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from perdure.adapters.git.checkpoint import read_transcript, read_turn, transcript_blobs
from perdure.adapters.git.messages import read_messages
from perdure.adapters.git.patch import unified_diff
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import WorkspaceRecord
from perdure.adapters.worker.turn.conversation import conversation_page
from perdure.models.delivery.turn import TURN_BEGINS, TextPage, VaultReadInput
from perdure.models.errors import BadInput
from perdure.models.ids import branch_name
from perdure.models.phases import Step
from perdure.text import shorten

ARTIFACT_PAGE_BYTES = 45_000
"""Bytes of an artifact in one page through Temporal: 60,000 characters in base64, below 64 KiB with what is around
them."""

DIFF_KEPT_CHARS = 32_000_000
"""Most characters of the one diff that is kept between two pages of it: a worker has memory for that."""

TURNS_PAGE_CHARS = 48_000
TURN_SAID_CHARS = 4_000
"""Characters of all turns in one page, and of what one turn said and did: a screen; `perdure logs` has the rest. A page
holds a dozen turns."""


_SHOWN_LINES = 20
"""Lines of one tool result in `logs`; the whole of it is in the transcript."""


_last_diff: dict[tuple[str, str, str], str] = {}
"""The diff that was read last, by vault, base and head."""


def delivery_page(vault: Vault, record: WorkspaceRecord, work: VaultReadInput) -> TextPage:
    """Return one page of what `work.what` names: for `turns_json` a JSON line a turn, for `artifact64` bytes in base64,
    both at most 64 KiB; for `conversation` as `conversation_page` says; otherwise at most `work.chars` characters of
    the text of `delivery_text`.

    `work.offset` counts checkpoints, bytes or characters; the page's `next` is the offset of the next one, None after
    the last. Raises BadInput for a kind that cannot be read, WorkspaceLost for an artifact that is not there.
    """
    if work.what == "turns_json":
        return _turns_page(vault, work)
    if work.what == "conversation":
        return conversation_page(vault, record.base_sha, work)
    if work.what == "artifact64":
        data = vault.get_artifact(work.delivery, work.checkpoint)
        end = work.offset + ARTIFACT_PAGE_BYTES
        text = base64.b64encode(data[work.offset : end]).decode()
        return TextPage(text=text, next=end if end < len(data) else None)
    whole = delivery_text(vault, record, work)
    text = whole[work.offset : work.offset + work.chars]
    end = work.offset + len(text)
    return TextPage(text=text, next=end if end < len(whole) else None)


def delivery_text(vault: Vault, record: WorkspaceRecord, work: VaultReadInput) -> str:
    """Return what `work.what` names as one text: `turns` (a line each) or `logs` (what was said and done), both up to
    the checkpoint `work.checkpoint`, or to the newest one without it; `diff` (of the delivery's branch, empty without
    one), or the `artifact` whose hash `work.checkpoint` is. Raises BadInput for anything else, WorkspaceLost for an
    artifact that is not there."""
    if work.what == "diff":
        head = vault.read_ref(f"refs/heads/{branch_name(work.delivery)}")
        return _diff_text(vault, record.base_sha, head) if head else ""
    if work.what == "artifact":
        return vault.get_artifact(work.delivery, work.checkpoint).decode(errors="replace")
    if work.what == "turns":
        return "\n".join(_turn_line(*turn_facts) for turn_facts in _turn_checkpoints(vault, work))
    if work.what == "logs":
        return "\n".join(_log_lines(vault, work))
    kinds = "turns, turns_json, conversation, logs, diff, artifact, artifact64"
    raise BadInput(f"{work.what!r} cannot be read", fix=f"one of {kinds}")


def _diff_text(vault: Vault, base: str, head: str) -> str:
    """Return the change from the merge base of `base` and `head` to `head`; made once for all who read pages of it one
    after the other."""
    key = str(vault.path), base, head
    if (text := _last_diff.get(key)) is None:
        text = unified_diff(vault, vault.merge_base(base, head), head)
        _last_diff.clear()
        if len(text) <= DIFF_KEPT_CHARS:
            _last_diff[key] = text
    return text


def _turns_page(vault: Vault, work: VaultReadInput) -> TextPage:
    """Return a page of JSON lines, each a turn with what was said and done in it, cut at TURN_SAID_CHARS; the page ends
    before TURNS_PAGE_CHARS, but has one line at least, and its `next` is the index of the checkpoint after it. Only the
    page's own checkpoints are read."""
    commits, size = _checkpoints(vault, work), 0
    lines: list[str] = []
    for index, (commit, _) in enumerate(commits[work.offset :], work.offset):
        turn = read_turn(vault, commit)
        if "turn" not in turn:
            continue
        line = json.dumps(_turn_entry(vault, commits[index - 1][0] if index else "", commit, turn))
        if lines and size + len(line) > TURNS_PAGE_CHARS:
            return TextPage(text="\n".join(lines), next=index)
        lines.append(line)
        size += len(line) + 1
    return TextPage(text="\n".join(lines))


def _turn_entry(vault: Vault, previous_commit: str, commit: str, turn: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of one turn for its JSON line: checkpoint, step, attempt, turn, summary, and what was said in
    it, which are the messages that the checkpoint before does not have, cut at TURN_SAID_CHARS; empty
    `previous_commit`: all but the opening message."""
    known_count = 1 if turn["turn"] == 1 or not previous_commit else len(read_transcript(vault, previous_commit))
    lines, remaining_chars = [], TURN_SAID_CHARS
    for line in (line for message in read_transcript(vault, commit)[known_count:] for line in _message_lines(message)):
        lines.append(line[:remaining_chars])
        remaining_chars -= len(line) + 1
        if remaining_chars <= 0:
            lines.append("…")
            break
    result = turn["result"]
    facts = {name: turn[name] for name in ("step", "attempt", "turn")}
    return {"checkpoint": commit, **facts, "summary": result.get("summary", ""), "said": "\n".join(lines)}


def _turn_checkpoints(vault: Vault, work: VaultReadInput) -> Iterator[tuple[str, datetime, dict[str, Any]]]:
    """Yield (commit, when it was made, the record of its turn) of each checkpoint up to the one that is named, or of
    the newest run, oldest first; that of prepare is no turn."""
    for commit, made in _checkpoints(vault, work):
        turn = read_turn(vault, commit)
        if "turn" in turn:
            yield commit, made, turn


def _checkpoints(vault: Vault, work: VaultReadInput) -> list[tuple[str, datetime]]:
    """Return all checkpoints up to the one that is named, or to the newest, oldest first, each with the time it was
    made."""
    if not (tip := work.checkpoint or _newest_checkpoint(vault, work.delivery)):
        return []
    output = vault.git.text("rev-list", "--first-parent", "--timestamp", "--end-of-options", tip).splitlines()
    pairs = [line.split() for line in reversed(output)]
    return [(commit, datetime.fromtimestamp(int(made), UTC)) for made, commit in pairs]


def _newest_checkpoint(vault: Vault, delivery: str) -> str:
    """Return the tip of the run that was worked on last; empty: the delivery has none."""
    prefix = f"refs/perdure/{delivery}/"
    return vault.git.text(
        "for-each-ref", "--sort=-committerdate", "--count=1", "--format=%(objectname)", prefix
    ).strip()


def _turn_line(commit: str, made: datetime, turn: dict[str, Any]) -> str:
    """Return the line of one turn: `2026-05-04 14:02:11 UTC  3f9c1d2a4b  implement 2  turn 3 · edit calc.py`."""
    attempt = f" {turn['attempt']}" if turn["attempt"] > 1 else ""
    return f"{made:%Y-%m-%d %H:%M:%S} UTC  {commit[:10]}  {turn['step']}{attempt}  {turn['result'].get('summary', '')}"


def _log_lines(vault: Vault, work: VaultReadInput) -> Iterator[str]:
    """Yield the lines of `logs`: for each turn its title, then what was said and done in it, then an empty line. A
    step's opening message is left out."""
    known_count = 0
    for commit, made, turn in _turn_checkpoints(vault, work):
        messages = read_transcript(vault, commit)
        if turn["turn"] == 1:
            known_count = 1  # the opening message is the request and its materials: shown elsewhere
        yield f"{TURN_BEGINS}{_turn_line(commit, made, turn)}"
        for message in messages[known_count:]:
            yield from _message_lines(message)
        known_count = len(messages)
        yield ""


def _message_lines(message: dict[str, Any]) -> Iterator[str]:
    """Yield one message of a transcript as indented lines: texts, tool calls with their arguments, and tool results.

    Arguments are cut at 300 characters; of each text and result only the first _SHOWN_LINES lines come, then how many
    more there are. Thinking is left out.
    """
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for block in content:
        kind = block.get("type")
        if kind == "text" and block["text"].strip():
            yield from _indent_lines(block["text"])
        elif kind == "tool_use":
            arguments = json.dumps(block["input"], ensure_ascii=False)
            yield f"  ▸ {block['name']} {shorten(arguments, 300)}"
        elif kind == "tool_result":
            yield from _indent_lines(_result_text(block), "    ")


def _result_text(block: dict[str, Any]) -> str:
    """Return the text of a tool's result, behind `! ` where it is an error."""
    content = block.get("content", "")
    if isinstance(content, list):
        content = "\n".join(part.get("text", "") for part in content)
    return ("! " if block.get("is_error") else "") + str(content)


def _indent_lines(text: str, indent: str = "  ") -> Iterator[str]:
    """Yield the first _SHOWN_LINES lines of a text, indented, and how many more there are."""
    lines = text.splitlines()
    for line in lines[:_SHOWN_LINES]:
        yield indent + line
    if len(lines) > _SHOWN_LINES:
        yield f"{indent}… {len(lines) - _SHOWN_LINES} more lines"


def agent_text(vault: Vault, base: str, commit: str) -> str | None:
    """Return what agents were asked to implement, and all that they said and called in the deliveries that made the
    commits from `base` to `commit`, without what tools answered and without reviews. None where a commit is not a
    delivery's, this vault has no turns of it, or they hold no call of an agent. Raises GitError or WorkspaceLost where
    some are damaged."""
    trailer = "--format=%(trailers:key=Perdure-Delivery,valueonly,separator=%x2C)"
    deliveries = set(vault.git.execute("log", trailer, "--end-of-options", commit, f"^{base}").lines)
    tips = {delivery: vault.list_refs(f"refs/perdure/{delivery}/").values() for delivery in deliveries if delivery}
    if not all(map(tips.get, deliveries)):
        return None
    checkpoints = vault.git.text("rev-list", "--first-parent", *(tip for refs in tips.values() for tip in refs)).split()
    messages, said = dict[str, bool](), list[Any]()
    for checkpoint in checkpoints:
        step = read_turn(vault, checkpoint).get("step")
        if step != Step.REVIEW:
            messages |= dict.fromkeys(transcript_blobs(vault, checkpoint), step == Step.IMPLEMENT)
    for message, asks in zip(read_messages(vault, list(messages)), messages.values(), strict=True):
        blocks = message["content"] if isinstance(message["content"], list) else [message["content"]]
        if asks or message["role"] == "assistant":
            said += [block for block in blocks if isinstance(block, str) or block.get("type") != "tool_result"]
    calls = any(isinstance(block, dict) and block.get("type") == "tool_use" for block in said)
    return json.dumps(said, ensure_ascii=False) if calls else None

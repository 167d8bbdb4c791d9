"""Turns of a delivery's conversation, read from its checkpoints for the page: texts, tool calls with their output, and
the change of each turn; everything is cut here, so that no output of a tool goes through Temporal as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from perdure.adapters.git.checkpoint import read_turn, transcript_blobs, worktree_tree
from perdure.adapters.git.messages import read_messages
from perdure.adapters.git.patch import line_counts, unified_diff
from perdure.adapters.git.vault import Vault
from perdure.models.delivery.conversation import ConversationBlock, ConversationTurn
from perdure.models.delivery.turn import TextPage, VaultReadInput
from perdure.models.errors import BadInput
from perdure.text import cut_middle, is_text, shorten, valid_text

BLOCK_CHARS = 4_000
"""Most characters of one text, of a call's arguments, of its output, and of a turn's change: two screens. `perdure
logs` has more of them, and the page's Change all of the change."""

TURN_CHARS = 16_000
"""Characters of one turn's blocks after which the rest is left out: forty turns of a page are below a megabyte."""

PAGE_TURNS = 40
"""Most turns of one read: what the page shows at first; each takes some 20 ms of the host."""

FILES_NAMED = 200
"""Most changed files that one turn names: more than the tasks of a plan have."""

_ARGUMENT_NAMES = ("command", "path", "file_path", "pattern", "query", "url")
"""Arguments that say by themselves what a call does, the first of them that there is."""

_REPLACEMENT_NAMES = (("old", "new"), ("old_string", "new_string"))
"""Arguments of a call that replaces a text in a file: our own tool's, Claude Code's."""

COMPARED_BYTES = 1_000_000
"""Largest file that a call has replaced which is compared with the new one."""

CONTEXT_LINES = 3
"""Lines that stay, shown before and behind those of a call's change."""


def conversation_page(vault: Vault, base: str, work: VaultReadInput) -> TextPage:
    """Return the turn that ended with the checkpoint `work.checkpoint` and those right before it, the newest first, a
    JSON line each; as many as fit into `work.chars` characters, but one at least.

    Raises WorkspaceLost when the vault does not have the checkpoint.
    """
    lines, size = list[str](), 0
    count = f"--max-count={PAGE_TURNS + 1}"
    listed = vault.git.execute("rev-list", "--first-parent", count, "--end-of-options", work.checkpoint, ok=(0, 128))
    commits = listed.lines if listed.returncode == 0 else [work.checkpoint]  # it is missing, as is said below
    for commit, parent in pairwise([*commits, ""][: PAGE_TURNS + 1]):
        if "turn" not in (turn := read_turn(vault, commit)):
            break
        line = _conversation_turn(vault, base, parent, commit, turn).model_dump_json()
        if lines and size + len(line) > work.chars:
            break
        lines.append(line)
        size += len(line) + 1
    return TextPage(text="\n".join(lines))


def _conversation_turn(vault: Vault, base: str, parent: str, commit: str, turn: dict[str, Any]) -> ConversationTurn:
    """Return one turn; its messages are those that the checkpoint before it does not have."""
    known = 1 if turn["turn"] == 1 or not parent else len(transcript_blobs(vault, parent))
    before, after = (worktree_tree(vault, one) if one else "" for one in (parent, commit))
    blocks = list(_message_blocks(read_messages(vault, transcript_blobs(vault, commit)[known:]), vault, before))
    kept, size = list[ConversationBlock](), 0
    for block in blocks:
        size += len(block.text) + len(block.arguments) + len(block.output) + len(block.change)
        if kept and size > TURN_CHARS:
            break
        kept.append(block)
    diff = unified_diff(vault, before, after) if before and before != after else ""
    return ConversationTurn(
        checkpoint=commit,
        blocks=tuple(kept),
        omitted=len(blocks) - len(kept),
        diff=_cut_diff(diff),
        changed=_changed_files(vault, before, after) if diff else (),
        all_changed=_changed_files(vault, base, after),
    )


def _cut_diff(diff: str) -> str:
    """Return a diff, its first whole lines where it has more than BLOCK_CHARS characters."""
    return diff if len(diff) <= BLOCK_CHARS else diff[:BLOCK_CHARS].rpartition("\n")[0] + "\n…"


def _changed_files(vault: Vault, before: str, after: str) -> tuple[str, ...]:
    """Return the names of the first FILES_NAMED files that differ."""
    return tuple(path.encode(errors="replace").decode() for path, _, _ in line_counts(vault, before, after))[
        :FILES_NAMED
    ]


def _message_blocks(messages: Sequence[dict[str, Any]], vault: Vault, before: str) -> Iterator[ConversationBlock]:
    """Yield texts and calls in their order, each call with the output that a later message has for it, and what it
    wrote to the tree `before`; thinking is left out."""
    contents = [
        [{"type": "text", "text": content}] if isinstance(content := message["content"], str) else content
        for message in messages
    ]
    results = {
        block.get("tool_use_id"): block
        for content in contents
        for block in content
        if block.get("type") == "tool_result"
    }
    written = dict[str, str]()
    for message, content in zip(messages, contents, strict=True):
        for block in content:
            if block.get("type") == "text" and (text := block["text"].strip()):
                yield ConversationBlock(text=_fit_block(text), engine=message.get("role") == "user")
            elif block.get("type") == "tool_use":
                result, arguments = results.get(block.get("id"), {}), block["input"]
                failed = bool(result.get("is_error"))
                change = "" if failed else _written_change(arguments, vault, before, written)
                yield ConversationBlock(
                    tool=shorten(valid_text(str(block["name"])), 100),
                    arguments=_fit_block(_subject_of(arguments) if change else _arguments_text(arguments)),
                    output=_fit_block(_result_text(result).strip("\n")),
                    failed=failed,
                    change=_cut_diff(valid_text(change)),
                )


def _written_change(arguments: object, vault: Vault, before: str, written: dict[str, str]) -> str:
    """Return the diff of what a call has written, by its arguments; empty for a call that writes no single file.

    A text and its replacement are compared with each other, a whole file with what this turn has `written` there
    before, which is noted, else with the file of the tree `before`. One that is too large is left out.
    """
    named = arguments if isinstance(arguments, dict) else {}
    path = next((value for name in ("path", "file_path") if isinstance(value := named.get(name), str)), "")
    for old_name, new_name in _REPLACEMENT_NAMES:
        old, new = named.get(old_name), named.get(new_name)
        if path and isinstance(old, str) and isinstance(new, str):
            return _diff_of(old, new, path)
    content = named.get("content")
    if not path or not isinstance(content, str) or "\0" in path or not is_text(path):
        return ""
    old = written.get(path)
    if old is None:
        with suppress(BadInput):  # too large to be compared
            old = (vault.read_file(before, path, COMPARED_BYTES) or b"").decode(errors="replace") if before else ""
    written[path] = content
    return _diff_of(old, content, path) if old is not None else ""


def _diff_of(old: str, new: str, path: str) -> str:
    """Return the change from one text to another as one hunk of a diff, with the path above it: the lines between what
    both begin and end with. No lines are matched in between, which takes minutes for texts that were made for it."""
    old_lines, new_lines = old.splitlines(), new.splitlines()
    first = _count_equal(old_lines, new_lines)
    behind = _count_equal(old_lines[first:][::-1], new_lines[first:][::-1])
    gone, added = old_lines[first : len(old_lines) - behind], new_lines[first : len(new_lines) - behind]
    around = old_lines[max(first - CONTEXT_LINES, 0) : first], old_lines[len(old_lines) - behind :][:CONTEXT_LINES]
    parts = ((" ", around[0]), ("-", gone), ("+", added), (" ", around[1]))
    return "\n".join([f"--- {path}", f"+++ {path}", "@@", *(sign + line for sign, lines in parts for line in lines)])


def _count_equal(left: Sequence[str], right: Sequence[str]) -> int:
    """Return how many lines are equal at the beginning of both."""
    return next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _fit_block(text: str) -> str:
    """Return at most BLOCK_CHARS characters of a text, its middle left out, as text that JSON can carry."""
    return valid_text(cut_middle(text, BLOCK_CHARS))


def _subject_of(arguments: object) -> str:
    """Return the argument that says what a call does; empty where it has none such."""
    named = arguments if isinstance(arguments, dict) else {}
    return next((str(named[name]) for name in _ARGUMENT_NAMES if isinstance(named.get(name), str)), "")


def _arguments_text(arguments: object) -> str:
    """Return the argument that says what a call does, alone where it is the only one, else before all as JSON."""
    subject = _subject_of(arguments)
    whole = (
        ""
        if subject and isinstance(arguments, dict) and len(arguments) == 1
        else json.dumps(arguments, ensure_ascii=False, indent=1)
    )
    return "\n".join(filter(None, (subject, whole)))


def _result_text(result: dict[str, Any]) -> str:
    """Return the texts of a tool's result; pictures and the like are left out."""
    content = result.get("content", "")
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))

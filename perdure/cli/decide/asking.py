"""The words of a waiting delivery to the person it waits for, and the commands that answer it; pure functions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from perdure.cli.look.step_lines import WARN
from perdure.models.decisions import PendingDecision, Question, QuestionKind
from perdure.models.result import DecisionMade
from perdure.text import one_line, visible

_INDENT = " " * 13

_LOOK = {"pull_request": "perdure diff", "tests": "perdure report"}
"""The command that shows what is decided; a plan is shown by `approve` itself."""


def waits_for_you(asked: PendingDecision, id: str) -> list[str]:
    """`! waits for you: approve the plan: …`, a question with its choices, and what to type."""
    if (question := asked.question) is not None:
        lines = [f"{WARN} waits for you: {one_line(question.text, 1000)}", *_question(question)]
    else:
        lines = [f"{WARN} waits for you: {one_line(asked.summary, 300)}"]
    if (look := _LOOK.get(asked.gate)) is not None:
        lines.append(f"{_INDENT}{look} {shlex.quote(id)}")
    if asked.expires is not None:
        lines.append(f"{_INDENT}without a decision it ends at {asked.expires:%Y-%m-%d %H:%M} UTC")
    return [*lines, *(_INDENT + command for command in commands(asked, id))]


def decided(made: DecisionMade) -> str:
    """`plan 1a2b3c4d approved by ada: as we said`."""
    said = f": {one_line(made.note, 160)}" if made.note else ""
    by = f" by {one_line(made.by, 60)}" if made.by else ""
    return (
        " ".join(word for word in (made.gate.replace("_", " "), one_line(made.target, 20), made.verdict) if word)
        + by
        + said
    )


def held(words: str, id: str) -> list[str]:
    """Return the lines of a delivery that somebody holds."""
    return [f"{WARN} {one_line(words)}", f"{_INDENT}perdure resume {shlex.quote(id)}"]


def commands(asked: PendingDecision, id: str) -> list[str]:
    """Return what a person types to decide it."""
    typed = shlex.quote(id)
    found = {
        "approve": f"perdure approve {typed}",
        "reject": f'perdure reject {typed} --note "…"',
        "edit_plan": f"perdure approve {typed} --edit",
        "answer": _answering(asked.question, typed),
        "add_budget": f"perdure budget {typed} --add 5",
    }
    return [found[option] for option in asked.options if option in found]


def waiting_words(asked: PendingDecision) -> str:
    """The gate and what it is about, in one line: `plan 1a2b3c4d: approve the plan: Add sub`."""
    words = asked.summary if asked.question is None else asked.question.text
    return f"{asked.gate.replace('_', ' ')} {asked.target}: {one_line(words, 300)}"


def chosen(question: Question, choice: str) -> str:
    """The choice that a number or its beginning means; as it was typed where it means none: the delivery says so."""
    choices, typed = choices_of(question), choice.strip()
    if question.kind is QuestionKind.CHOICE and typed.isdecimal() and 1 <= int(typed) <= len(choices):
        return choices[int(typed) - 1]
    begun = [one for one in choices if one.lower().startswith(typed.lower())]
    return begun[0] if len(begun) == 1 and typed else choice


def meant(question: Question, text: str) -> str:
    """Return an answer's meaning: the choice that reads so, else as in `chosen`; itself where words are wanted."""
    same = [one for one in choices_of(question) if " ".join(one.split()).lower() == " ".join(text.split()).lower()]
    return same[0] if same else chosen(question, text)


def none_of(question: Question, text: str, id: str) -> tuple[str, str]:
    """Say why that is no answer, and what would be one; empty when it is."""
    choices, given = choices_of(question), one_line(text, 60)
    if not choices or text in choices:
        return "", ""
    typed = f"perdure answer {shlex.quote(id)}"
    if question.kind is QuestionKind.YES_NO:
        return f"{given!r} is neither yes nor no", f"{typed} yes"
    *others, last = [f"{number} ({one_line(one, 40)})" for number, one in enumerate(choices, 1)]
    return f"{given!r} is none of the {len(choices)} choices", f"{typed} --choice {', '.join(others)} or {last}"


def choices_of(question: Question) -> Sequence[str]:
    return ("yes", "no") if question.kind is QuestionKind.YES_NO else question.choices


def diffstat(patch: str, most: int) -> list[str]:
    """`+12 −3  calc.py`, at most `most` files, of a patch as git writes it."""
    counts: dict[str, list[int]] = {}
    name, inside = "", False
    for line in patch.splitlines():
        if line.startswith("diff --git "):
            name, inside = line.rpartition(" b/")[2].strip('"'), False
            counts[name] = [0, 0]
        elif line.startswith("@@"):
            inside = True
        elif inside and name and line[:1] in ("+", "-"):
            counts[name][line[0] == "-"] += 1
    lines = [f"  {f'+{added} −{gone}':<12} {one_line(visible(file))}" for file, (added, gone) in counts.items()]
    return lines[:most] + ([f"  … {len(lines) - most} more files"] if len(lines) > most else [])


def _question(question: Question) -> list[str]:
    lines = [f"{_INDENT}it matters because: {one_line(question.why, 500)}"] if question.why.strip() else []
    choices = question.choices if question.kind is QuestionKind.CHOICE else ()
    return [*lines, *(f"{_INDENT}{number}  {one_line(choice)}" for number, choice in enumerate(choices, 1))]


def _answering(question: Question | None, typed: str) -> str:
    match question.kind if question is not None else QuestionKind.TEXT:
        case QuestionKind.CHOICE:
            return f"perdure answer {typed} --choice 1"
        case QuestionKind.YES_NO:
            return f"perdure answer {typed} yes"
        case _:
            return f'perdure answer {typed} "…"'

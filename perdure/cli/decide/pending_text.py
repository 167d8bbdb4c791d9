"""The lines that tell a person what a delivery waits for, what was decided, and the commands to type; pure
functions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from perdure.cli.look.step_lines import WARN
from perdure.models.decisions import PendingDecision, Question, QuestionKind
from perdure.models.result import DecisionMade
from perdure.text import one_line, visible

_INDENT = " " * 13

_VIEW_COMMANDS = {"pull_request": "perdure diff", "tests": "perdure report"}
"""The command that shows what is decided; a plan is shown by `approve` itself."""


def pending_lines(pending_decision: PendingDecision, id: str) -> list[str]:
    """Return the lines that tell a person what a delivery waits for: `! waits for you: approve the plan: …`, a question
    with its choices, when it ends, and what to type."""
    if (question := pending_decision.question) is not None:
        lines = [f"{WARN} waits for you: {one_line(question.text, 1000)}", *_question_lines(question)]
    else:
        lines = [f"{WARN} waits for you: {one_line(pending_decision.summary, 300)}"]
    if (view_command := _VIEW_COMMANDS.get(pending_decision.gate)) is not None:
        lines.append(f"{_INDENT}{view_command} {shlex.quote(id)}")
    if pending_decision.expires is not None:
        lines.append(f"{_INDENT}without a decision it ends at {pending_decision.expires:%Y-%m-%d %H:%M} UTC")
    return [*lines, *(_INDENT + command for command in commands_for_decision(pending_decision, id))]


def decision_line(decision: DecisionMade) -> str:
    """Return a decision in one line: `plan 1a2b3c4d approved by ada: as we said`."""
    note = f": {one_line(decision.note, 160)}" if decision.note else ""
    by = f" by {one_line(decision.by, 60)}" if decision.by else ""
    return (
        " ".join(
            word for word in (decision.gate.replace("_", " "), one_line(decision.target, 20), decision.verdict) if word
        )
        + by
        + note
    )


def hold_lines(reason: str, id: str) -> list[str]:
    """Return the lines about a delivery that a person holds: the reason, and the command that ends the hold."""
    return [f"{WARN} {one_line(reason)}", f"{_INDENT}perdure resume {shlex.quote(id)}"]


def commands_for_decision(pending_decision: PendingDecision, id: str) -> list[str]:
    """Return the commands that a person types to decide what a delivery waits for, one for each option."""
    quoted_id = shlex.quote(id)
    command_by_option = {
        "approve": f"perdure approve {quoted_id}",
        "reject": f'perdure reject {quoted_id} --note "…"',
        "edit_plan": f"perdure approve {quoted_id} --edit",
        "answer": _answer_command(pending_decision.question, quoted_id),
        "add_budget": f"perdure budget {quoted_id} --add 5",
    }
    return [command_by_option[option] for option in pending_decision.options if option in command_by_option]


def pending_summary(pending_decision: PendingDecision) -> str:
    """Return the gate and what it is about, in one line: `plan 1a2b3c4d: approve the plan: Add sub`."""
    summary = pending_decision.summary if pending_decision.question is None else pending_decision.question.text
    return f"{pending_decision.gate.replace('_', ' ')} {pending_decision.target}: {one_line(summary, 300)}"


def resolve_choice(question: Question, choice: str) -> str:
    """Return the choice that a person means by its number or beginning. Where it means none or several, what was typed
    is returned: the delivery refuses it."""
    choices, typed = choices_of(question), choice.strip()
    if question.kind is QuestionKind.CHOICE and typed.isdecimal() and 1 <= int(typed) <= len(choices):
        return choices[int(typed) - 1]
    matching = [option for option in choices if option.lower().startswith(typed.lower())]
    return matching[0] if len(matching) == 1 and typed else choice


def resolve_answer(question: Question, text: str) -> str:
    """Return the choice that an answer means: the one with this text, whatever its case and spaces, else as
    resolve_choice does. The text itself where the question has no choices."""
    equal = [
        option for option in choices_of(question) if " ".join(option.split()).lower() == " ".join(text.split()).lower()
    ]
    return equal[0] if equal else resolve_choice(question, text)


def explain_invalid_answer(question: Question, text: str, id: str) -> tuple[str, str]:
    """Return (why a text is no answer to the question, the command that would be one); both are empty when it is an
    answer."""
    choices, shown = choices_of(question), one_line(text, 60)
    if not choices or text in choices:
        return "", ""
    command = f"perdure answer {shlex.quote(id)}"
    if question.kind is QuestionKind.YES_NO:
        return f"{shown!r} is neither yes nor no", f"{command} yes"
    *others, last = [f"{number} ({one_line(choice, 40)})" for number, choice in enumerate(choices, 1)]
    return f"{shown!r} is none of the {len(choices)} choices", f"{command} --choice {', '.join(others)} or {last}"


def choices_of(question: Question) -> Sequence[str]:
    """Return the choices of a question; yes and no for a yes-or-no question, none for a free one."""
    return ("yes", "no") if question.kind is QuestionKind.YES_NO else question.choices


def diffstat_lines(patch: str, most: int) -> list[str]:
    """Return the added and removed lines of each file in a patch of git's, such as `+12 −3  calc.py`; at most `most`
    files, and how many more."""
    counts: dict[str, list[int]] = {}
    name, in_hunk = "", False
    for line in patch.splitlines():
        if line.startswith("diff --git "):
            name, in_hunk = line.rpartition(" b/")[2].strip('"'), False
            counts[name] = [0, 0]
        elif line.startswith("@@"):
            in_hunk = True
        elif in_hunk and name and line[:1] in ("+", "-"):
            counts[name][line[0] == "-"] += 1
    lines = [f"  {f'+{added} −{removed}':<12} {one_line(visible(file))}" for file, (added, removed) in counts.items()]
    return lines[:most] + ([f"  … {len(lines) - most} more files"] if len(lines) > most else [])


def _question_lines(question: Question) -> list[str]:
    """Return the lines below a question: why it matters, and its choices with their numbers."""
    lines = [f"{_INDENT}it matters because: {one_line(question.why, 500)}"] if question.why.strip() else []
    choices = question.choices if question.kind is QuestionKind.CHOICE else ()
    return [*lines, *(f"{_INDENT}{number}  {one_line(choice)}" for number, choice in enumerate(choices, 1))]


def _answer_command(question: Question | None, quoted_id: str) -> str:
    """Return the command that answers a question, with an example of an answer by its kind."""
    match question.kind if question is not None else QuestionKind.TEXT:
        case QuestionKind.CHOICE:
            return f"perdure answer {quoted_id} --choice 1"
        case QuestionKind.YES_NO:
            return f"perdure answer {quoted_id} yes"
        case _:
            return f'perdure answer {quoted_id} "…"'

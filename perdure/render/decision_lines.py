"""The view of a person before deciding: what a delivery waits for, the commands to type, the plan, the change, tests,
and what is spent; also which choice of a question a typed answer means. Used by the command line, the page and the
other modules of `perdure.render`; decisions are sent elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from perdure.client.delivery.handle import Delivery
from perdure.models.checks.report import Review, TestReport
from perdure.models.delivery.decisions import Gate, PendingDecision, Question, QuestionKind
from perdure.models.delivery.result import DecisionMade
from perdure.models.delivery.result_text import at_risk_text, pending_text
from perdure.models.delivery.state import Progress
from perdure.models.delivery.steps import Decomposition, Plan
from perdure.models.errors import PerdureError
from perdure.models.limits import STAT_FILES, STAT_PAGES
from perdure.models.patch import read_files
from perdure.models.phases import Step
from perdure.models.rules.allowance import used_tokens
from perdure.render.findings_text import promise_lines, report_lines
from perdure.render.step_lines import WARN
from perdure.text import (
    escape_path,
    format_count,
    format_money,
    format_tokens,
    one_line,
    shell_word,
    shorten,
    span,
    visible,
)


async def pending_details(delivery: Delivery, pending_decision: PendingDecision) -> list[str]:
    """Fetch what is to be decided and return its lines by gate: the plan or items; results and test report; or results,
    tests of the base that fail on the change, and its files. Empty for other gates.

    When any of it cannot be fetched, as from a host that does not answer, the last line says so instead. Raises
    ValidationError when a report or review was written in another shape by another release.
    """
    lines: list[str] = []
    try:
        if pending_decision.gate in (Gate.PLAN, Gate.ITEMS):
            plan = (await delivery.artifact((await delivery.progress()).plan)).decode(errors="replace")
            lines += plan_lines(plan)
        elif pending_decision.gate is Gate.TESTS:
            lines += verdict_lines(await delivery.progress())
            lines += ["", *(f"  {line}" for line in await test_report_lines(delivery)), ""]
        elif pending_decision.gate is Gate.PULL_REQUEST:
            lines += verdict_lines(await delivery.progress())
            lines += await _promise_lines(delivery)
            lines += await _change_lines(delivery)
    except PerdureError as error:
        lines.append(f"! it cannot be shown just now: {one_line(error.what)}")
    return lines


def verdict_lines(progress: Progress) -> list[str]:
    """Return the last results of tests and review (`not run`, `not done` without one) and the cost so far, as lines
    below an empty one."""
    summaries = {record.step: record.summary for record in progress.steps if record.summary}
    rows = [
        ("tests", summaries.get(Step.RUN_TESTS, "not run")),
        ("review", summaries.get(Step.REVIEW, "not done")),
        ("cost", format_money(progress.spend.usd, progress.budget_usd)),
    ]
    return ["", *(f"  {name:<8} {one_line(text, 300)}" for name, text in rows)]


def plan_lines(written: str) -> list[str]:
    """Return a stored plan as lines: its title, and its tasks with their files; stored items as `item_lines` has them.

    Any other text is a plan in somebody's own words: its lines, indented and without invisible characters.
    """
    with suppress(ValueError):
        return item_lines(Decomposition.model_validate_json(written))
    try:
        plan = Plan.model_validate_json(written)
    except ValueError:
        return [f"  {line}" for line in visible(written).splitlines()]
    tasks = [
        f"  {number}. {one_line(task.title)}{task.title_suffix}"
        + (f"  ({', '.join(map(one_line, task.files))})" if task.files else "")
        for number, task in enumerate(plan.tasks, 1)
    ]
    return ["", f"  {one_line(plan.title)}", "", *tasks, ""]


def item_lines(items: Decomposition) -> list[str]:
    """Return the items that a request was decomposed into as lines: what is wanted of each, what it touches, its checks
    and role."""
    lines = [""]
    for part in items.items:
        extras = [f"touches {', '.join(map(one_line, part.touches))}"] if part.touches else []
        extras += [f"check {one_line(check)}" for check in part.check]
        extras += [part.role] if part.role else []
        lines += [f"  {part.id}{part.id_suffix}" + (f"  ({'; '.join(extras)})" if extras else "")]
        lines += [*(f"    {line}" for line in visible(part.request).splitlines()), ""]
    return lines


async def test_report_lines(delivery: Delivery) -> list[str]:
    """Fetch the newest test report and return its lines.

    Raises PerdureError where nothing was tested, or nobody can show the report, and ValidationError for one that
    another release wrote in another shape.
    """
    progress = await delivery.progress()
    if not progress.report:
        raise PerdureError("nothing was tested")
    return report_lines(TestReport.model_validate_json(await delivery.artifact(progress.report, progress.queue)))


def budget_lines(progress: Progress) -> list[str]:
    """Return a delivery's id, then what it has spent of what it may spend: a line for dollars and one for tokens, one
    for time when that is limited; and how many messages it has not read, if any."""
    spend = progress.spend
    no_limit = " of no limit yet" if progress.budget_usd is None else ""
    dollars = [format_money(spend.usd, progress.budget_usd) + no_limit, at_risk_text(spend.at_risk_usd)]
    most = f" of {format_tokens(progress.budget_tokens)}" if progress.budget_tokens else ", no limit"
    at_risk = (
        f", up to {format_tokens(spend.at_risk_tokens)} of them for replies cut off" if spend.at_risk_tokens else ""
    )
    lines = [
        progress.delivery_id,
        f"  dollars  {', '.join(filter(None, dollars))}",
        f"  tokens   {format_tokens(used_tokens(progress.usage, spend))}{most}{at_risk}",
    ]
    if progress.time_s is not None:
        spent = span(progress.used_s) if progress.used_s is not None else "unknown"
        lines.append(f"  time     {spent} of {span(progress.time_s)}")
    if progress.unread:
        lines.append(f"  unread   {format_count(progress.unread, 'message')} for the next turn")
    return lines


def budget_json(progress: Progress) -> dict[str, Any]:
    """Return what a delivery has spent and may spend for `--json`: under `usd`, `tokens` and `time_s` each what is used
    and the limit. `usd` spent None: a price is not known; a limit None: there is none."""
    usage, spend = progress.usage, progress.spend
    limit = round(progress.budget_usd, 6) if progress.budget_usd is not None else None
    return {
        "delivery_id": progress.delivery_id,
        "usd": {"spent": spend.usd, "at_risk": spend.at_risk_usd, "limit": limit},
        "tokens": {"used": used_tokens(usage, spend), "limit": progress.budget_tokens or None},
        "time_s": {"used": progress.used_s, "limit": progress.time_s},
    }


async def _promise_lines(delivery: Delivery) -> list[str]:
    """Fetch the newest report and review, and return lines about the tests of the base that the change does not keep,
    with the words of the request that ask for it.

    Empty when nothing was tested, no experiment was made, or all of them are kept. Raises PerdureError when worker or
    host does not answer, and ValidationError for a report or review in another release's shape.
    """
    progress = await delivery.progress()
    if not progress.report:
        return []
    report = TestReport.model_validate_json(await delivery.artifact(progress.report, progress.queue))
    if report.experiment is None or not report.experiment.changed_promises:
        return []
    written = await delivery.artifact(progress.review, progress.queue) if progress.review else b""
    lines = promise_lines(report, Review.model_validate_json(written) if written else None)
    return ["", *(f"  {line}" for line in lines)]


async def _change_lines(delivery: Delivery) -> list[str]:
    """Fetch the delivery's diff page by page and return lines with the number of lines added and removed in each file,
    at most STAT_FILES files.

    A diff of more than STAT_PAGES pages is counted as far as it was read, and a line says so. Raises PerdureError when
    no worker answers, or when the machine that works on the delivery does not answer or cannot read the diff.
    """

    queue = (await delivery.progress()).queue
    patch, offset = "", 0
    for _ in range(STAT_PAGES):
        page = await delivery.read_page("diff", offset, queue)
        patch += page.text
        if page.next is None:
            return ["", *diffstat_lines(patch, STAT_FILES), ""]
        offset = page.next
    return ["", *diffstat_lines(patch, STAT_FILES), "  … and more: the change is too long to be counted here", ""]


_INDENT = " " * 13

_VIEW_COMMANDS = {"pull_request": "perdure diff", "tests": "perdure report"}
"""The command that shows what is decided; a plan is shown by `approve` itself."""


def pending_lines(pending_decision: PendingDecision, id: str) -> list[str]:
    """Return the lines that tell a person what a delivery waits for: `! waits for you: approve the plan: …`, a question
    with its choices, the command that shows a change or tests, when it ends, and the commands that decide."""
    if (question := pending_decision.question) is not None:
        lines = [f"{WARN} waits for you: {one_line(question.text, 1000)}", *_question_lines(question)]
    else:
        lines = [f"{WARN} waits for you: {one_line(pending_decision.summary, 300)}"]
    if (view_command := _VIEW_COMMANDS.get(pending_decision.gate)) is not None:
        lines.append(f"{_INDENT}{view_command} {shell_word(id)}")
    if pending_decision.expires is not None:
        lines.append(f"{_INDENT}without a decision it ends at {pending_decision.expires:%Y-%m-%d %H:%M} UTC")
    return [*lines, *(_INDENT + command for command in commands_for_decision(pending_decision, id))]


def decision_subject(pending_decision: PendingDecision) -> str:
    """Return what a decision is bound to, as people call it: `commit 0fdf8d0`, `plan 1a2b3c4`; without a hash where
    there is none to name."""
    short_target = pending_decision.target.partition("-")[0][:7]
    match pending_decision.gate:
        case Gate.PULL_REQUEST | Gate.LANDING:
            return f"commit {short_target}"
        case Gate.PLAN | Gate.ITEMS:
            return f"{pending_decision.gate} {short_target}"
        case Gate.TESTS:
            return f"tree {short_target}"
        case _:
            return ""


def earlier_rejection(decisions: Sequence[DecisionMade], pending_decision: PendingDecision) -> DecisionMade | None:
    """Return the newest rejection of exactly what is asked about again: the same gate and hash; None where there is
    none."""
    sha = pending_decision.target.partition("-")[0]
    return next(
        (
            made
            for made in reversed(decisions)
            if (made.gate, made.verdict, made.target.partition("-")[0]) == (pending_decision.gate, "rejected", sha)
        ),
        None,
    )


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
    return [f"{WARN} {one_line(reason)}", f"{_INDENT}perdure resume {shell_word(id)}"]


def commands_for_decision(pending_decision: PendingDecision, id: str) -> list[str]:
    """Return the commands that a person types to decide what a delivery waits for, one for each option."""
    quoted_id = shell_word(id)
    command_by_option = {
        "approve": f"perdure approve {quoted_id}",
        "reject": f'perdure reject {quoted_id} --note "…"',
        "edit_plan": f"perdure approve {quoted_id} --edit",
        "answer": _answer_command(pending_decision.question, quoted_id),
        "add_budget": f"perdure budget {quoted_id} {pending_decision.budget_options}",
    }
    return [command_by_option[option] for option in pending_decision.options if option in command_by_option]


def pending_summary(pending_decision: PendingDecision) -> str:
    """Return the gate and what it is about, in one line: `plan 1a2b3c4d: approve the plan: Add sub`."""
    return f"{pending_decision.gate.replace('_', ' ')} {pending_decision.target}: {pending_text(pending_decision)}"


def resolve_choice(question: Question, choice: str) -> str:
    """Return the choice that a person means by its number or beginning.

    What was typed is returned as it is when it means none or several: the delivery refuses it. A number counts only for
    a question with choices of its own, not for yes or no.
    """
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
    answer, which any text is to a question without choices."""
    choices, shown = choices_of(question), one_line(text, 60)
    if not choices or text in choices:
        return "", ""
    command = f"perdure answer {shell_word(id)}"
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
    lines = []
    for file in read_files(patch.encode(errors="replace")):
        added, deleted = file.count_lines()
        lines.append(f"  {f'+{added} −{deleted}':<12} {shorten(escape_path(file.path), 200)}")
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

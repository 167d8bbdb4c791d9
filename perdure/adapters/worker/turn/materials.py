"""The material of a step's opening message: artifacts as text, the change as a diff, the app's pages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.adapters.agents.builtin.issue import shown as as_shown
from perdure.adapters.agents.builtin.opening import ShownPage
from perdure.adapters.agents.builtin.places import Change
from perdure.adapters.agents.builtin.promised import Promised, PromisedText
from perdure.adapters.agents.builtin.said import Message, spoken
from perdure.adapters.checks.findings.leaked import shown
from perdure.adapters.git import patch
from perdure.adapters.git.checkpoint import read_turn
from perdure.adapters.git.vault import Vault
from perdure.adapters.worker.turn.tries import told_of
from perdure.adapters.worker.turn.written import read_picture, read_report, read_screenshots
from perdure.models.bent import faults
from perdure.models.contract import Contract
from perdure.models.errors import WorkspaceLost
from perdure.models.limits import CASE_MESSAGE_CHARS
from perdure.models.phases import Step
from perdure.models.promised import changed, labels, notes
from perdure.models.report import CommandResult, Finding, Findings, Screenshot, Screenshots, TestCase, TestReport
from perdure.models.turn import TurnInput
from perdure.text import one_line

_MESSAGE_LINES = 12
"""Of a changed promise's test."""

REPORT_CASES = 40
REPORT_CASES_CHARS = 40_000
"""Failing tests of one command in a prompt, and what all their messages take: the cause of more is in the first."""


MATERIAL = "screenshots"
"""The one material that is no text: an artifact of Screenshots, given as images."""


def texts(vault: Vault, delivery: str, materials: Mapping[str, str]) -> dict[str, str]:
    """Names to texts: those in _READ are artifacts, `base` and `head` become `diff`, and a
    report brings its `experiment` along; others stay as they are, and screenshots are left out."""
    found = {
        name: _READ[name](vault.get_artifact(delivery, value)) for name, value in materials.items() if name in _READ
    }
    found |= {name: value for name, value in materials.items() if name not in (*found, "base", "head", MATERIAL)}
    if "base" in materials and "head" in materials:
        head = materials["head"]
        found["diff"] = patch.unified(vault, vault.merge_base(materials["base"], head), head)
    report = read_report(vault, delivery, materials.get("report", ""))
    if report is not None and report.experiment is not None:
        found["experiment"] = _experiment(report)
    if "tries" in materials:
        found["tries"] = told_of(vault, delivery, materials)
    return found


def change_of(vault: Vault, work: TurnInput) -> Change | None:
    """Return a review's change, named in its first turn; None in a review that an older release began."""
    materials = _begun_with(vault, work)
    if not ("base" in materials and "head" in materials):
        return None
    head = materials["head"]
    base = vault.merge_base(materials["base"], head)
    changed = patch.entries(vault, base, head)
    binaries = patch.binaries(vault, base, head)
    files: dict[str, tuple[tuple[int, int], ...] | None] = {
        shown(one.path): None if one.path in binaries else () for one in changed
    }
    for path, hunks in patch.hunks(vault, base, head, [one for one in changed if one.path not in binaries]):
        files[shown(path)] = tuple((hunk.first, hunk.last) for hunk in hunks if hunk.first <= hunk.last)
    return Change(files)


def promised_of(vault: Vault, work: TurnInput, contract: Contract, told: Sequence[Message]) -> Promised | None:
    """The changed promises of the report a review was given, and all words that say what is wanted; None without any,
    and in other steps.

    Comments of an issue can be anybody's: a short one as a whole is no quote.
    """
    if work.step is not Step.REVIEW:
        return None
    report = read_report(vault, work.delivery, _begun_with(vault, work).get("report", ""))
    if report is None or report.experiment is None or not report.experiment.promises:
        return None
    words = [PromisedText(contract.request), *(PromisedText(text) for text in spoken(told))]
    if (issue := contract.issue) is not None:
        words += [PromisedText(as_shown(issue.title)), PromisedText(as_shown(issue.text))]
        words += [PromisedText(as_shown(comment.text), whole=False) for comment in issue.comments]
    return Promised(labels(report.experiment.promises), tuple(words))


def _begun_with(vault: Vault, work: TurnInput) -> dict[str, str]:
    """The materials of a review's first turn; none where an older release began it."""
    if work.turn == 1:
        return work.materials
    begun = read_turn(vault, f"{work.checkpoint}~{work.turn - 2}")
    if (begun.get("step"), begun.get("turn")) != (str(Step.REVIEW), 1):
        return {}
    return dict(begun.get("materials", {}))


def _report(data: bytes) -> str:
    """A test report without what nobody has to read: thousands of tests that passed."""
    report = TestReport.model_validate_json(data)
    told = report.model_dump(mode="json", exclude_defaults=True, exclude={"commands", "experiment"})
    return _json({**told, "commands": [_command(one) for one in report.commands]})


def _command(result: CommandResult) -> dict[str, Any]:
    told = result.model_dump(mode="json", exclude_defaults=True, exclude={"cases", "tail"})
    told["counts"] = Counter(case.outcome for case in result.cases)
    worth = [case for case in result.cases if case.outcome in ("failed", "errored") or case.flaky]
    if result.verdict != "passed" and result.tail:
        told["tail"] = result.tail
    if worth:
        room = max(200, min(CASE_MESSAGE_CHARS, REPORT_CASES_CHARS // min(len(worth), REPORT_CASES)))
        told["cases"] = [_case(case, room) for case in worth[:REPORT_CASES]]
    if len(worth) > REPORT_CASES:
        told["not_listed"] = f"{len(worth) - REPORT_CASES} more failing or flaky tests: run the command to see them"
    return told


def _case(case: TestCase, room: int) -> dict[str, Any]:
    told = case.model_dump(mode="json", exclude_defaults=True, exclude={"duration_s"})
    message = case.message if len(case.message) <= room else case.message[: room - 1] + "…"
    return {**told, "known": case.known, **({"message": message} if message else {})}


def _findings(data: bytes) -> str:
    """Write the engine's findings, the worst first, then tests that check something else now, before and after."""
    found = Findings.model_validate_json(data)
    size = f"{found.files} files, {found.added} lines added, {found.deleted} deleted"
    lines = [f"The change: {size}.", *(_finding(one) for one in found.findings)]
    if not found.findings:
        lines.append("Nothing was found.")
    if found.changed_tests:
        lines.append("Tests of the base that check something else now:")
    for test in found.changed_tests:
        place = f"{test.file}:{test.line}" if test.line else test.file
        lines += [f"- {test.name} ({place})", *_marked("-", test.before), *_marked("+", test.after)]
    return "\n".join(lines)


def _finding(one: Finding) -> str:
    place = f" ({one.file}:{one.line})" if one.file and one.line else f" ({one.file})" if one.file else ""
    words = " ".join(part for part in (one.description, one.suggestion) if part)
    return f"- {one.severity}, {one.rule}: {one.title}{place}" + (f"\n  {words}" if words else "")


def _marked(sign: str, text: str) -> list[str]:
    return [f"  {sign} {line}" for line in text.splitlines()]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _as_it_is(data: bytes) -> str:
    return data.decode(errors="replace")


_READ: Mapping[str, Callable[[bytes], str]] = {
    "plan": _as_it_is,
    "conflict": _as_it_is,
    "report": _report,
    "findings": _findings,
    "review": _as_it_is,
}


def _experiment(report: TestReport) -> str:
    """The line of the verdict, why it is red, then each changed promise with both versions."""
    tried = report.experiment
    if tried is None:
        return ""
    lines = [tried.line, *(f"tampered: {fault.title}" for fault in faults(report)), *notes(tried)]
    promises = changed(report)
    if promises:
        base = tried.branch or "the base"
        lines.append(f"Changed promises, tests of {base} that fail on the change. Each needs an answer in `promises`:")
    for one in promises:
        file = one.promise.file
        lines.append(f"- {one.name}" + (f" ({one_line(file, 200)})" if file and file not in one.name else ""))
        lines += [f"    {line}" for line in one.promise.message.splitlines()[:_MESSAGE_LINES]]
        lines += [f"  {line}" for line in one.versions]
    return "\n".join(line for line in lines if line.strip())


PICTURES_SHOWN = 8
PICTURES_SHOWN_BYTES = 6_000_000
"""Given to a reviewer: some 25,000 tokens; each turn sends them again, and a request may have 32 MB."""


def pages(vault: Vault, delivery: str, materials: dict[str, str]) -> list[ShownPage]:
    """Return what there is to see, in the order of `[app] pages`; nothing where no screenshots were wanted. What the
    vault has lost is not seen: pictures decide about nothing, so they fail nothing."""
    told = _screenshots(vault, delivery, materials.get(MATERIAL, ""))
    if told is None:
        return []
    seen, room, left = [], PICTURES_SHOWN_BYTES, PICTURES_SHOWN
    for shot in told.pictures:
        png = read_picture(vault, delivery, shot) if left else b""
        shown = bool(png) and len(png) <= room
        seen.append(ShownPage(shot.page, _words(shot, told, shown=shown), png if shown else b""))
        room, left = room - len(png) * shown, left - shown
    if told.note:
        seen.append(ShownPage("(all pages)", told.note))
    return seen


def _screenshots(vault: Vault, delivery: str, artifact: str) -> Screenshots | None:
    try:
        return read_screenshots(vault, delivery, artifact)
    except (WorkspaceLost, ValueError):
        return None


def texts_only(materials: dict[str, str]) -> dict[str, str]:
    """The other materials."""
    return {name: value for name, value in materials.items() if name != MATERIAL}


def _words(shot: Screenshot, told: Screenshots, *, shown: bool) -> str:
    lines = [f"page: {shot.page}", f"commit: {told.commit}"]
    if shown:
        lines.append(f"picture: {shot.width} x {shot.height} pixels, below")
    else:
        lines.append("picture: left out here" if shot.artifact else "picture: none")
    return "\n".join([*lines, *([f"note: {shot.note}"] if shot.note else [])])

"""The materials of a step's opening message, made for its first turn: artifacts as text, the change as a diff, the
app's pages, the repository's map; and the change and promises (tests of the base that fail on the change) that a review
is checked against. Used by the other modules of this package.

The map is made from git's objects, never from files as they lie there: a turn that is done again gets the same bytes,
and what an agent's sandbox does not show is not in them.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.adapters.agents.builtin.opening import ShownPage
from perdure.adapters.agents.builtin.repository_map import MAP_FILE_BYTES, build_map
from perdure.adapters.agents.builtin.review import RequestText, ReviewedChange, ReviewPromises
from perdure.adapters.agents.builtin.user_messages import strip_hidden as as_shown
from perdure.adapters.agents.builtin.user_messages import texts_from_people
from perdure.adapters.checks.findings.secret_leaks import printable_path
from perdure.adapters.git import patch
from perdure.adapters.git.checkpoint import read_turn, worktree_tree
from perdure.adapters.git.objects import ObjectReader
from perdure.adapters.git.repository import CACHED_ANSWERS
from perdure.adapters.git.vault import Vault
from perdure.adapters.worker.turn.documents import describe_fixes, read_picture, read_report, read_screenshots
from perdure.models.base import Message
from perdure.models.checks.report import CommandResult, Finding, Findings, Screenshot, Screenshots, TestCase, TestReport
from perdure.models.checks.verdict_text import changed_promises, experiment_notes, find_faults, promises_by_label
from perdure.models.delivery.steps import STEPS
from perdure.models.delivery.turn import Contract, TurnInput
from perdure.models.errors import WorkspaceLost
from perdure.models.limits import CASE_MESSAGE_CHARS
from perdure.models.phases import Step
from perdure.text import one_line, shorten

_MESSAGE_LINES = 12
"""The most lines that are shown of the message of a changed promise's test."""

REPORT_CASES = 40
REPORT_CASES_CHARS = 40_000
"""Failing tests of one command in a prompt, and the characters that all their messages take: the cause of more is in
the first."""


PICTURES_MATERIAL = "screenshots"
"""The name of the one material that is no text: an artifact of Screenshots, given as images."""


def material_texts(vault: Vault, delivery: str, materials: Mapping[str, str]) -> dict[str, str]:
    """Return the materials as texts by name. Plan, conflict, report, findings and review are read from their artifacts,
    `base` and `head` become `diff`, a report brings its `experiment` along, `tries` becomes a text about earlier fixes;
    others stay as they are, and screenshots are left out. Raises WorkspaceLost when an artifact is gone."""
    texts = {
        name: _RENDERERS[name](vault.get_artifact(delivery, value))
        for name, value in materials.items()
        if name in _RENDERERS
    }
    texts |= {
        name: value for name, value in materials.items() if name not in (*texts, "base", "head", PICTURES_MATERIAL)
    }
    if "base" in materials and "head" in materials:
        head = materials["head"]
        texts["diff"] = patch.unified_diff(vault, vault.merge_base(materials["base"], head), head)
    report = read_report(vault, delivery, materials.get("report", ""))
    if report is not None and report.experiment is not None:
        texts["experiment"] = _experiment_text(report)
    if "tries" in materials:
        texts["tries"] = describe_fixes(vault, delivery, materials)
    return texts


def review_change(vault: Vault, work: TurnInput) -> ReviewedChange | None:
    """Return the files and changed lines of a review's change, which its first turn names: path → line ranges of the
    new side, None for a binary file, no range for a file without new lines. None in a review that an older release
    began."""
    materials = _first_turn_materials(vault, work)
    if not ("base" in materials and "head" in materials):
        return None
    head = materials["head"]
    base = vault.merge_base(materials["base"], head)
    changed_paths = patch.changed_paths(vault, base, head)
    binaries = patch.binary_paths(vault, base, head)
    files: dict[str, tuple[tuple[int, int], ...] | None] = {
        printable_path(changed_path.path): None if changed_path.path in binaries else ()
        for changed_path in changed_paths
    }
    for path, hunks in patch.read_hunks(
        vault, base, head, [changed_path for changed_path in changed_paths if changed_path.path not in binaries]
    ):
        files[printable_path(path)] = tuple((hunk.first, hunk.last) for hunk in hunks if hunk.first <= hunk.last)
    return ReviewedChange(files)


def review_promises(
    vault: Vault, work: TurnInput, contract: Contract, messages: Sequence[Message]
) -> ReviewPromises | None:
    """Return the changed promises (tests of the base that fail on the change) of the report a review was given, with
    all texts that say what is wanted. None where there are no such promises, and in other steps.

    Comments of an issue can be anybody's: a short one as a whole is no quote.
    """
    if work.step is not Step.REVIEW:
        return None
    report = read_report(vault, work.delivery, _first_turn_materials(vault, work).get("report", ""))
    if report is None or report.experiment is None or not report.experiment.changed_promises:
        return None
    request_texts = [RequestText(contract.request), *(RequestText(text) for text in texts_from_people(messages))]
    if (issue := contract.issue) is not None:
        request_texts += [RequestText(as_shown(issue.title)), RequestText(as_shown(issue.text))]
        request_texts += [RequestText(as_shown(comment.text), whole=False) for comment in issue.comments]
    return ReviewPromises(promises_by_label(report.experiment.changed_promises), tuple(request_texts))


def _first_turn_materials(vault: Vault, work: TurnInput) -> dict[str, str]:
    """Return the materials of a review's first turn, from this turn's input or that turn's checkpoint; empty where an
    older release began the review."""
    if work.turn == 1:
        return work.materials
    first_turn = read_turn(vault, f"{work.checkpoint}~{work.turn - 2}")
    if (first_turn.get("step"), first_turn.get("turn")) != (str(Step.REVIEW), 1):
        return {}
    return dict(first_turn.get("materials", {}))


def _report_json(data: bytes) -> str:
    """Return a test report as compact JSON without what nobody has to read: thousands of tests that passed."""
    report = TestReport.model_validate_json(data)
    fields = report.model_dump(mode="json", exclude_defaults=True, exclude={"commands", "experiment"})
    return _compact_json({**fields, "commands": [_command_fields(result) for result in report.commands]})


def _command_fields(result: CommandResult) -> dict[str, Any]:
    """Return what a prompt has of one test command's result: its fields, counts by outcome, the tail of its output
    unless it passed, and the first REPORT_CASES failing or flaky tests with their messages cut; beyond them, how many
    are not listed."""
    fields = result.model_dump(mode="json", exclude_defaults=True, exclude={"cases", "tail"})
    fields["counts"] = Counter(case.outcome for case in result.cases)
    shown_cases = [case for case in result.cases if case.outcome in ("failed", "errored") or case.flaky]
    if result.verdict != "passed" and result.tail:
        fields["tail"] = result.tail
    if shown_cases:
        room = max(200, min(CASE_MESSAGE_CHARS, REPORT_CASES_CHARS // min(len(shown_cases), REPORT_CASES)))
        fields["cases"] = [_case_fields(case, room) for case in shown_cases[:REPORT_CASES]]
    if len(shown_cases) > REPORT_CASES:
        fields["not_listed"] = (
            f"{len(shown_cases) - REPORT_CASES} more failing or flaky tests: run the command to see them"
        )
    return fields


def _case_fields(case: TestCase, room: int) -> dict[str, Any]:
    """Return what a prompt has of one test: its message is cut to `room` characters."""
    fields = case.model_dump(mode="json", exclude_defaults=True, exclude={"duration_s"})
    message = shorten(case.message, room)
    return {**fields, "known": case.known, **({"message": message} if message else {})}


def _findings_text(data: bytes) -> str:
    """Return the engine's findings as text: the size of the change, each finding or that there is none, then tests that
    check something else now, before and after."""
    findings = Findings.model_validate_json(data)
    size = f"{findings.files} files, {findings.added} lines added, {findings.deleted} deleted"
    lines = [f"The change: {size}.", *(_finding_text(finding) for finding in findings.findings)]
    if not findings.findings:
        lines.append("Nothing was found.")
    if findings.changed_tests:
        lines.append("Tests of the base that check something else now:")
    for test in findings.changed_tests:
        place = f"{test.file}:{test.line}" if test.line else test.file
        lines += [f"- {test.name} ({place})", *_mark_lines("-", test.before), *_mark_lines("+", test.after)]
    return "\n".join(lines)


def _finding_text(finding: Finding) -> str:
    """Return one finding as a line of a list, with its description and suggestion below it."""
    place = (
        f" ({finding.file}:{finding.line})"
        if finding.file and finding.line
        else f" ({finding.file})"
        if finding.file
        else ""
    )
    details = " ".join(part for part in (finding.description, finding.suggestion) if part)
    return f"- {finding.severity}, {finding.rule}: {finding.title}{place}" + (f"\n  {details}" if details else "")


def _mark_lines(sign: str, text: str) -> list[str]:
    """Return the lines of a text, each behind a sign."""
    return [f"  {sign} {line}" for line in text.splitlines()]


def _compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _decode_text(data: bytes) -> str:
    return data.decode(errors="replace")


_RENDERERS: Mapping[str, Callable[[bytes], str]] = {
    "plan": _decode_text,
    "conflict": _decode_text,
    "report": _report_json,
    "findings": _findings_text,
    "review": _decode_text,
}


def _experiment_text(report: TestReport) -> str:
    """Return the line of the experiments' verdict, why it is red, then each changed promise (a test of the base that
    fails on the change) with the beginning of its message and both versions of the test; empty without an
    experiment."""
    experiment = report.experiment
    if experiment is None:
        return ""
    lines = [
        experiment.summary_line,
        *(f"tampered: {fault.title}" for fault in find_faults(report)),
        *experiment_notes(experiment),
    ]
    promises = changed_promises(report)
    if promises:
        base = experiment.branch or "the base"
        lines.append(f"Changed promises, tests of {base} that fail on the change. Each needs an answer in `promises`:")
    for promise in promises:
        file = promise.promise.file
        lines.append(f"- {promise.name}" + (f" ({one_line(file, 200)})" if file and file not in promise.name else ""))
        lines += [f"    {line}" for line in promise.promise.message.splitlines()[:_MESSAGE_LINES]]
        lines += [f"  {line}" for line in promise.versions]
    return "\n".join(line for line in lines if line.strip())


PICTURES_SHOWN = 8
PICTURES_SHOWN_BYTES = 6_000_000
"""Pictures that a reviewer is given, and their bytes: some 25,000 tokens; each turn sends them again, and a request may
have 32 MB."""


def shown_pages(vault: Vault, delivery: str, materials: dict[str, str]) -> list[ShownPage]:
    """Return the application's pages as a reviewer is shown them, in the order of `[app] pages`, with pictures up to
    PICTURES_SHOWN and PICTURES_SHOWN_BYTES, the others as a caption alone, then a note about all of them; empty where
    no screenshots were wanted. What the vault has lost is not shown, and raises nothing: pictures decide about
    nothing."""
    screenshots = _find_screenshots(vault, delivery, materials.get(PICTURES_MATERIAL, ""))
    if screenshots is None:
        return []
    page_list, remaining_bytes, remaining_pictures = [], PICTURES_SHOWN_BYTES, PICTURES_SHOWN
    for shot in screenshots.pictures:
        png = read_picture(vault, delivery, shot) if remaining_pictures else b""
        shown = bool(png) and len(png) <= remaining_bytes
        page_list.append(ShownPage(shot.page, _page_caption(shot, screenshots, shown=shown), png if shown else b""))
        remaining_bytes, remaining_pictures = remaining_bytes - len(png) * shown, remaining_pictures - shown
    if screenshots.note:
        page_list.append(ShownPage("(all pages)", screenshots.note))
    return page_list


def _find_screenshots(vault: Vault, delivery: str, artifact: str) -> Screenshots | None:
    """Return the screenshots of an artifact; None where there is none, or it is lost or damaged."""
    try:
        return read_screenshots(vault, delivery, artifact)
    except (WorkspaceLost, ValueError):
        return None


def without_pictures(materials: dict[str, str]) -> dict[str, str]:
    """Return the materials that are texts: all but the screenshots."""
    return {name: value for name, value in materials.items() if name != PICTURES_MATERIAL}


def _page_caption(shot: Screenshot, screenshots: Screenshots, *, shown: bool) -> str:
    """Return the text beside a page's picture: page, commit, the picture's size or why there is none, and its note.
    `shown`: the picture is given along."""
    lines = [f"page: {shot.page}", f"commit: {screenshots.commit}"]
    if shown:
        lines.append(f"picture: {shot.width} x {shot.height} pixels, below")
    else:
        lines.append("picture: left out here" if shot.artifact else "picture: none")
    return "\n".join([*lines, *([f"note: {shot.note}"] if shot.note else [])])


MAP_MATERIAL = "repository"
"""The name of the material that the map becomes."""


def map_material(vault: Vault, checkpoint: str, step: Step) -> dict[str, str]:
    """Return the map of a checkpoint's files as a material of a step's first message; empty for steps that stay close
    to what they are given, and for a repository without files. Raises WorkspaceLost."""
    if not STEPS[step].gets_notes:
        return {}
    text = _map_text(vault, worktree_tree(vault, checkpoint))
    return {MAP_MATERIAL: text} if text else {}


@functools.lru_cache(CACHED_ANSWERS)
def _map_text(vault: Vault, tree: str) -> str:
    """Return the map of a tree's files, kept in memory for the trees asked for last; links are left out, because they
    lead elsewhere."""
    files = {path: sha for path, mode, sha in vault.list_files(tree) if mode.startswith("100")}  # links lead elsewhere
    return build_map(files, lambda paths: _read_contents(vault, {path: files[path] for path in paths}))


def _read_contents(vault: Vault, shas: Mapping[str, str]) -> dict[str, bytes]:
    """Read from the vault those of the files, path → object, that are no larger than MAP_FILE_BYTES."""
    reader = ObjectReader(vault.git)
    try:
        contents = reader.read_objects(list(shas.values()), MAP_FILE_BYTES, MAP_FILE_BYTES * len(shas))
        return {path: data for path, (_, data) in zip(shas, contents, strict=True) if data is not None}
    finally:
        reader.close()

"""The engine's own findings in a change, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from perdure.adapters.forges.neutral import code, line, quote, span
from perdure.models.report import ChangedTest, Finding, Findings, Severity

_MOST_SHOWN = 30
"""Findings in a pull request's text; findings.md has all of them."""


def findings_section(findings: Findings | None) -> str:
    """One line each, the worst first; empty when nothing was found."""
    found = _sorted(findings)
    lines = [
        f"- **{_word(finding.severity)}** {line(finding.title)}"
        + (f" ({place})" if (place := span(_where(finding))) else "")
        for finding in found[:_MOST_SHOWN]
    ]
    if len(found) > _MOST_SHOWN:
        lines.append(f"- and {len(found) - _MOST_SHOWN} more")
    return "\n".join(lines)


def findings_line(findings: Findings) -> str:
    """`2 blockers, 1 tech debt, in 3 files, +48 −7`."""
    counts = Counter(finding.severity for finding in findings.findings)
    words = [f"{counts[severity]} {_word(severity)}" for severity in Severity if counts[severity]]
    files = "1 file" if findings.files == 1 else f"{findings.files} files"
    return f"{', '.join(words) or 'nothing found'}, in {files}, +{findings.added} −{findings.deleted}"


def findings_page(findings: Findings) -> str:
    """findings.md."""
    parts = [
        "# Found by the engine",
        f"From `{findings.base}` to `{findings.head}`: {findings_line(findings)}.",
        *(_finding(finding) for finding in _sorted(findings)),
    ]
    if findings.changed_tests:
        parts += ["## Tests that check something else now", *(_changed(test) for test in findings.changed_tests)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _finding(finding: Finding) -> str:
    suggestion = f"Suggestion:\n\n{quote(finding.suggestion)}" if finding.suggestion.strip() else ""
    return _joined(
        f"## {_word(finding.severity).capitalize()}: {line(finding.title)}",
        code(_where(finding)),
        quote(finding.description),
        suggestion,
    )


def _changed(test: ChangedTest) -> str:
    place = code(test.file + (f":{test.line}" if test.line else ""))
    before = f"Before:\n\n{quote(test.before)}" if test.before.strip() else ""
    after = f"Now:\n\n{quote(test.after)}" if test.after.strip() else ""
    return _joined(f"### {line(test.name)}", place, before, after)


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _sorted(findings: Findings | None) -> list[Finding]:
    order = list(Severity)
    found: Iterable[Finding] = findings.findings if findings is not None else ()
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _where(finding: Finding) -> str:
    return finding.file + (f":{finding.line}" if finding.line else "") if finding.file.strip() else ""


def _word(severity: Severity) -> str:
    return severity.replace("_", " ")

"""The findings of the experiments on a change, for steps: a reviewer answers each changed promise by its name."""

from __future__ import annotations

from perdure.models.bent import faults
from perdure.models.promised import changed, notes
from perdure.models.report import TestReport
from perdure.text import one_line

_MESSAGE_LINES = 12


def experiment_text(report: TestReport) -> str:
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

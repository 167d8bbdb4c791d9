"""What the experiments on a change found, as steps read it: a reviewer answers each changed promise by its name."""

from __future__ import annotations

from perdure.adapters.agents.promised import labels
from perdure.adapters.agents.text import plain
from perdure.models.experiment import Experiment
from perdure.models.promised import difference, notes, reasons

_MESSAGE_LINES = 12


def experiment_text(experiment: Experiment) -> str:
    """The line of the verdict, why it is red, what was not asked, then each changed promise with both versions."""
    lines = [experiment.line, *(f"tampered: {why}" for why in reasons(experiment)), *notes(experiment)]
    base = experiment.branch or "the base"
    seen = set[tuple[str, ...]]()
    if promises := labels(experiment.promises):
        lines.append(f"Changed promises, tests of {base} that fail on the change. Each needs an answer in `promises`:")
    for label, promise in promises.items():
        place = f" ({plain(promise.file, 200)})" if promise.file and promise.file not in label else ""
        lines.append(f"- {label}{place}")
        lines += [f"    {line}" for line in promise.message.splitlines()[:_MESSAGE_LINES]]
        versions = difference(promise)
        lines += [f"  {line}" for line in versions] if versions not in seen else ["  both versions are above"]
        seen.add(versions)
    return "\n".join(line for line in lines if line.strip())

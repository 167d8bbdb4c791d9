"""An experiment in words, the same wherever it is shown: why it makes a verdict red, what was not asked, promises."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from perdure.models.experiment import Experiment, Promise
from perdure.models.policy import EXPERIMENT_LINES, EXPERIMENT_WORDS

SAME = "the test is the same: what it uses has changed"


def reasons(experiment: Experiment) -> tuple[str, ...]:
    """One line for each way in which the tests pass without the product being right; empty: none was found."""
    base, found = experiment.branch or "the base", list[str]()
    for one in experiment.commands:
        if one.missed:
            found.append(
                f"{one.name}: {_count(one.missed, 'test')} that must fail {'was' if len(one.missed) == 1 else 'were'} "
                f"not reported red (canaries): something steers the runner, its report or its exit"
            )
        if one.contradicted:
            said = "fail on the change in a clean, read-only checkout, and were reported as passed"
            found.append(f"{one.name}: tests of {base} {said}: {named(one.contradicted)}")
        if one.written:
            found.append(f"{one.name}: the test side was written to while the tests ran: {named(one.written)}")
        if one.taken and not (experiment.allowed or experiment.removes):
            said = f"tests of {base} fail on the change, and were taken away or skipped"
            found.append(f"{one.name}: {said}: {named(one.taken)}")
    return tuple(found)


def notes(experiment: Experiment) -> tuple[str, ...]:
    """One line for each thing a person should know that does not decide; what was not asked is said once."""
    base, found = experiment.branch or "the base", list[str]()
    if experiment.allowed and (taken := [name for one in experiment.commands for name in one.taken]):
        found.append(f"taken away, as the request allows: {named(taken)}")
    if lost := [name for one in experiment.commands for name in one.lost]:
        found.append(f"tests of {base} that would pass, and are gone: {named(lost)}")
    if steered := dict.fromkeys(path for one in experiment.commands for path in one.steered):
        found.append(f"{base}'s tests start only with the change's own settings: {named(tuple(steered))}")
    unasked = dict.fromkeys(words for one in experiment.commands for words in one.unasked)
    return (*found, *(f"not asked: {words}" for words in unasked))


def difference(promise: Promise) -> tuple[str, ...]:
    """Both versions of its test as lines that begin with `-`, `+` or a blank; empty where they are not known."""
    before, after = promise.before.splitlines(), promise.after.splitlines()
    if before == after:
        return (f"  {SAME}",) if before else ()
    lines = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]
    told = [f"{line[0]} {line[1:]}" if line[0] in "+- " else "…" for line in lines]
    shown = told[1:] if told[:1] == ["…"] else told
    more = [f"… {len(shown) - EXPERIMENT_LINES} more lines"] if len(shown) > EXPERIMENT_LINES else []
    return (*shown[:EXPERIMENT_LINES], *more)


def named(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    known = list(names)
    more = f" and {len(known) - EXPERIMENT_WORDS} more" if len(known) > EXPERIMENT_WORDS else ""
    return ", ".join(known[:EXPERIMENT_WORDS]) + more


def _count(of: Sequence[str], word: str) -> str:
    return f"{len(of)} {word}{'s' if len(of) != 1 else ''}"

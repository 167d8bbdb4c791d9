"""The journal of a delivery on this host: attempts begun and ended, so that deaths can be counted.

A line for every attempt that begins and one for every attempt that ends; what began, never ended and belongs to a
worker that is gone was a death. The journal lives outside any workflow run: a rewind forgets nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perdure.adapters.system.files import append_line
from perdure.models.result import Receipt
from perdure.models.steps import AGENTIC
from perdure.models.work import Asking

DONE, ADOPTED, CUT_OFF = "done", "adopted", "WorkCutOff"


class Journal:
    """`journal.jsonl` of one delivery. `alive` says of a worker's name whether it lives."""

    def __init__(self, directory: Path, alive: Callable[[str], bool]) -> None:
        self._path = directory / "journal.jsonl"
        self._alive = alive

    def began(self, *, attempt: str, key: str, activity: str, worker: str) -> None:
        """`attempt` names this very attempt, `key` the work that every attempt at it shares."""
        line = {"began": attempt, "key": key, "activity": activity, "worker": worker}
        append_line(self._path, json.dumps(line).encode(), sync=False)

    def ended(self, attempt: str, how: str, why: str = "") -> None:
        """`how`: done, adopted, cancelled, superseded, or the type of the error; `why`: what cut it off, in words."""
        line = {"ended": attempt, "how": how, **({"why": why} if why else {})}
        append_line(self._path, json.dumps(line).encode(), sync=False)

    def asks(self, asking: Asking) -> None:
        """Note who decides while nothing is prepared, as far as it is known now."""
        append_line(self._path, json.dumps({"asking": asking.model_dump(mode="json")}).encode(), sync=False)

    def asking(self) -> Asking | None:
        """Return the last note of that; None when nothing was."""
        told = [line["asking"] for line in self._lines() if "asking" in line]
        return Asking.model_validate(told[-1]) if told else None

    def take_in(self, other: Journal) -> None:
        """Note the attempts of another delivery, too, each once: those of a plan's tasks are their delivery's."""
        known = {json.dumps(line, sort_keys=True) for line in read_lines(self._path)}
        for line in read_lines(other._path):
            line["of"] = other._path.parent.name
            if ("began" in line or "ended" in line) and json.dumps(line, sort_keys=True) not in known:
                append_line(self._path, json.dumps(line).encode(), sync=False)

    def attempts(self) -> list[str]:
        """The names of all its own attempts that began, in order."""
        return [line["began"] for line in self._lines() if "began" in line and "of" not in line]

    def deaths(self, key: str) -> list[str]:
        """The causes that cut this piece of work off, one a time: death of its worker, its sandbox, or its worktree."""
        died = ["its worker died" for line in self._died() if line["key"] == key]
        return died + [line.get("why", CUT_OFF) for line in self._cut_off() if line["key"] == key]

    def failures(self, key: str, how: str) -> int:
        """Count the attempts at this piece of work that have ended this way."""
        return sum(1 for line in self._lines() if line.get("key") == key and line.get("how") == how)

    def receipt(self) -> Receipt:
        """Deaths and redone turns; what was paid is the spend log's to say."""
        died, cut_off = list(self._died()), list(self._cut_off())
        ends = {(line["key"], line["how"]) for line in self._lines() if "how" in line}
        agentic = {str(step) for step in AGENTIC}
        redone = 0
        for key, deaths in Counter(line["key"] for line in died + cut_off if line["activity"] in agentic).items():
            if (key, DONE) in ends:
                redone += deaths
            elif (key, ADOPTED) in ends:
                redone += deaths - 1  # the last of the dead, a worker, had done it: its checkpoint was found
        workers = {line["worker"] for line in died}  # one may have told several people besides
        return Receipt(worker_deaths=len(workers), turns_redone=redone)

    def _died(self) -> Iterator[dict[str, Any]]:
        lines = list(self._lines())
        ended = {line["ended"] for line in lines if "ended" in line}
        living: dict[str, bool] = {}
        for line in lines:
            if "began" not in line or line["began"] in ended:
                continue
            worker = line["worker"]
            if worker not in living:
                living[worker] = self._alive(worker)
            if not living[worker]:
                yield line

    def _cut_off(self) -> Iterator[dict[str, Any]]:
        return (line for line in self._lines() if line.get("how") == CUT_OFF)

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Every whole line; an `ended` line carries key and activity of what it ended."""
        begun: dict[str, dict[str, Any]] = {}
        for line in read_lines(self._path):
            if "began" in line:
                begun[line["began"]] = line
            elif "ended" in line:
                what = begun.get(line["ended"], {})
                line |= {"key": what.get("key", ""), "activity": what.get("activity", "")}
            yield line


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a line file; a line torn by a death is skipped."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for raw in data.splitlines():
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line

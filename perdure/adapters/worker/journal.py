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
from perdure.models.work import EscalationSettings

DONE, ADOPTED, CUT_OFF = "done", "adopted", "WorkCutOff"


class Journal:
    """The file `journal.jsonl` of one delivery. `alive` says of a worker's name whether it lives."""

    def __init__(self, directory: Path, alive: Callable[[str], bool]) -> None:
        self._path = directory / "journal.jsonl"
        self._alive = alive

    def record_start(self, *, attempt: str, key: str, activity: str, worker: str) -> None:
        """Append that an attempt has begun. `attempt` names this very attempt, `key` the work that every attempt at it
        shares."""
        line = {"began": attempt, "key": key, "activity": activity, "worker": worker}
        append_line(self._path, json.dumps(line).encode(), sync=False)

    def record_end(self, attempt: str, how: str, why: str = "") -> None:
        """Append that an attempt has ended. `how`: done, adopted, cancelled, superseded, or the type of the error;
        `why`: what cut it off, in words."""
        line = {"ended": attempt, "how": how, **({"why": why} if why else {})}
        append_line(self._path, json.dumps(line).encode(), sync=False)

    def record_deciders(self, deciders: EscalationSettings) -> None:
        """Append who decides while the delivery is not prepared, as far as that is known now."""
        append_line(self._path, json.dumps({"asking": deciders.model_dump(mode="json")}).encode(), sync=False)

    def last_deciders(self) -> EscalationSettings | None:
        """Return who decides while the delivery is not prepared, as it was noted last; None when nothing was."""
        entries = [line["asking"] for line in self._read_entries() if "asking" in line]
        return EscalationSettings.model_validate(entries[-1]) if entries else None

    def include_journal(self, other: Journal) -> None:
        """Append the attempts of another delivery, each once, marked with its name: those of a plan's tasks are their
        delivery's."""
        own_lines = {json.dumps(line, sort_keys=True) for line in read_json_lines(self._path)}
        for line in read_json_lines(other._path):
            line["of"] = other._path.parent.name
            if ("began" in line or "ended" in line) and json.dumps(line, sort_keys=True) not in own_lines:
                append_line(self._path, json.dumps(line).encode(), sync=False)

    def attempts(self) -> list[str]:
        """Return the names of all attempts of the delivery itself that began, in order."""
        return [line["began"] for line in self._read_entries() if "began" in line and "of" not in line]

    def deaths(self, key: str) -> list[str]:
        """Return the causes that cut this piece of work off, one for each time: death of its worker, its sandbox, or
        its worktree. `key` as in `record_start`."""
        worker_deaths = ["its worker died" for line in self._worker_death_lines() if line["key"] == key]
        return worker_deaths + [line.get("why", CUT_OFF) for line in self._cut_off_lines() if line["key"] == key]

    def failures(self, key: str, how: str) -> int:
        """Count the attempts at this piece of work that have ended this way."""
        return sum(1 for line in self._read_entries() if line.get("key") == key and line.get("how") == how)

    def make_receipt(self) -> Receipt:
        """Count the workers that died and the turns that were done again after a death, and return both; what was paid
        is in the spend log."""
        deaths_of_workers, cut_off = list(self._worker_death_lines()), list(self._cut_off_lines())
        outcomes = {(line["key"], line["how"]) for line in self._read_entries() if "how" in line}
        agentic = {str(step) for step in AGENTIC}
        redone = 0
        for key, deaths in Counter(
            line["key"] for line in deaths_of_workers + cut_off if line["activity"] in agentic
        ).items():
            if (key, DONE) in outcomes:
                redone += deaths
            elif (key, ADOPTED) in outcomes:
                redone += deaths - 1  # the last of the dead, a worker, had done it: its checkpoint was found
        workers = {line["worker"] for line in deaths_of_workers}  # one may have told several people besides
        return Receipt(worker_deaths=len(workers), turns_redone=redone)

    def _worker_death_lines(self) -> Iterator[dict[str, Any]]:
        """Yield the start line of each attempt that never ended and whose worker is dead."""
        lines = list(self._read_entries())
        ended = {line["ended"] for line in lines if "ended" in line}
        is_living: dict[str, bool] = {}
        for line in lines:
            if "began" not in line or line["began"] in ended:
                continue
            worker = line["worker"]
            if worker not in is_living:
                is_living[worker] = self._alive(worker)
            if not is_living[worker]:
                yield line

    def _cut_off_lines(self) -> Iterator[dict[str, Any]]:
        return (line for line in self._read_entries() if line.get("how") == CUT_OFF)

    def _read_entries(self) -> Iterator[dict[str, Any]]:
        """Yield every whole line as an object; an `ended` line also gets key and activity of what it ended."""
        starts: dict[str, dict[str, Any]] = {}
        for line in read_json_lines(self._path):
            if "began" in line:
                starts[line["began"]] = line
            elif "ended" in line:
                start = starts.get(line["ended"], {})
                line |= {"key": start.get("key", ""), "activity": start.get("activity", "")}
            yield line


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a line file, none where there is no file; a line that is torn by a death is skipped."""
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

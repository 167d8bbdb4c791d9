"""What happened to a delivery on this host: attempts begun and ended, so that deaths can be counted.

A line for every attempt that begins and one for every attempt that ends; what began, never ended and belongs to a
worker that is gone was a death. The journal lives outside any workflow run: a rewind forgets nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perdure.adapters.host.files import append_line
from perdure.models.phases import AGENTIC
from perdure.models.result import Receipt

DONE, ADOPTED = "done", "adopted"


class Journal:
    """`journal.jsonl` of one delivery. `alive` says of a worker's name whether it lives."""

    def __init__(self, directory: Path, alive: Callable[[str], bool]) -> None:
        self._path = directory / "journal.jsonl"
        self._alive = alive

    def began(self, *, attempt: str, key: str, activity: str, worker: str) -> None:
        """`attempt` names this very attempt, `key` the work that every attempt at it shares."""
        line = {"began": attempt, "key": key, "activity": activity, "worker": worker}
        append_line(self._path, json.dumps(line).encode(), sync=False)

    def ended(self, attempt: str, how: str) -> None:
        """`how`: done, adopted, cancelled, superseded, or the type of the error."""
        append_line(self._path, json.dumps({"ended": attempt, "how": how}).encode(), sync=False)

    def attempts(self) -> list[str]:
        """The names of all attempts that began, in order."""
        return [line["began"] for line in self._lines() if "began" in line]

    def deaths(self, key: str) -> int:
        """How many workers have died over this piece of work."""
        return sum(1 for line in self._died() if line["key"] == key)

    def failures(self, key: str, how: str) -> int:
        """How many attempts at this piece of work have ended this way."""
        return sum(1 for line in self._lines() if line.get("key") == key and line.get("how") == how)

    def receipt(self) -> Receipt:
        """Deaths and redone turns; what was paid is the spend log's to say."""
        died = list(self._died())
        ends = {(line["key"], line["how"]) for line in self._lines() if "how" in line}
        agentic = {str(step) for step in AGENTIC}
        redone = 0
        for key, deaths in Counter(line["key"] for line in died if line["activity"] in agentic).items():
            if (key, DONE) in ends:
                redone += deaths
            elif (key, ADOPTED) in ends:
                redone += deaths - 1  # the last of the dead had done it: its checkpoint was found
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

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Every whole line; an `ended` line carries the key of what it ended."""
        keys: dict[str, str] = {}
        for line in read_lines(self._path):
            if "began" in line:
                keys[line["began"]] = line["key"]
            elif "ended" in line:
                line["key"] = keys.get(line["ended"], "")
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

"""The records of a delivery on this host, outside any workflow run, so that a rewind forgets nothing: attempts begun
and ended, money spent, and model replies before anything is done with them. Beside them, how a full disk is recognized.
Used by the other modules of `perdure.adapters.worker` alone.

An attempt that the journal shows begun and never ended, and whose worker is gone, was a death.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from perdure.adapters.git.command import GitError
from perdure.adapters.system.files import append_json_line, make_directory, read_json_lines
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.result import Receipt
from perdure.models.delivery.steps import AGENTIC
from perdure.models.delivery.work import EscalationSettings
from perdure.models.errors import MAKE_ROOM, DiskFull
from perdure.models.limits import DISK_FREE_BYTES

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
        append_json_line(self._path, line, sync=False)

    def record_end(self, attempt: str, how: str, why: str = "") -> None:
        """Append that an attempt has ended. `how`: done, adopted, cancelled, superseded, or the type of the error;
        `why`: what cut it off, in words."""
        line = {"ended": attempt, "how": how, **({"why": why} if why else {})}
        append_json_line(self._path, line, sync=False)

    def record_deciders(self, deciders: EscalationSettings) -> None:
        """Append who decides while the delivery is not prepared, as far as that is known now."""
        append_json_line(self._path, {"asking": deciders.model_dump(mode="json")}, sync=False)

    def last_deciders(self) -> EscalationSettings | None:
        """Return who decides while the delivery is not prepared, as it was noted last; None when nothing was."""
        entries = [line["asking"] for line in self._read_entries() if "asking" in line]
        return EscalationSettings.model_validate(entries[-1]) if entries else None

    def include_journal(self, other: Journal) -> None:
        """Append the begun and ended attempts of another delivery that are not here yet, marked with its name: those of
        the deliveries of a plan's tasks count as their delivery's. Calling it twice adds nothing."""
        own_lines = {json.dumps(line, sort_keys=True) for line in read_json_lines(self._path)}
        for line in read_json_lines(other._path):
            line["of"] = other._path.parent.name
            if ("began" in line or "ended" in line) and json.dumps(line, sort_keys=True) not in own_lines:
                append_json_line(self._path, line, sync=False)

    def attempts(self) -> list[str]:
        """Return the names of all attempts of the delivery itself that began, in order."""
        return [line["began"] for line in self._read_entries() if "began" in line and "of" not in line]

    def deaths(self, key: str) -> list[str]:
        """Return the causes that cut this piece of work off, one for each time: first "its worker died" for attempts
        that never ended, then the recorded cause of those whose sandbox or worktree was lost. `key` as in
        `record_start`."""
        worker_deaths = ["its worker died" for line in self._worker_death_lines() if line["key"] == key]
        return worker_deaths + [line.get("why", CUT_OFF) for line in self._cut_off_lines() if line["key"] == key]

    def failures(self, key: str, how: str) -> int:
        """Count the attempts at this piece of work that have ended this way."""
        return sum(1 for line in self._read_entries() if line.get("key") == key and line.get("how") == how)

    def make_receipt(self) -> Receipt:
        """Count the workers that died and the turns that were done again after a death, and return both; replies paid
        twice or cut off are counted in the spend log. Deaths of a turn that never finished count as no turn done again,
        nor does the last death of a turn whose checkpoint was found afterwards."""
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


class SpendLog:
    """`spend.jsonl` of one delivery: an intent before every request, fsynced, a settlement after its reply. One that a
    power cut took is made again from the stored reply (see ReplyStore)."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._path = directory, directory / "spend.jsonl"

    def record_intent(
        self,
        request_id: str,
        reply_key: str,
        upper_usd: float | None,
        upper_tokens: int = 0,
        *,
        request_digest: str = "",
        run_id: str = "",
        turn_digest: str = "",
    ) -> None:
        """Append, before it is sent, that a request is going to be paid for; fsynced.

        request_id      names this very request
        reply_key       names the reply it asks for
        upper_usd       the most that request and reply can cost; None: the price is not known
        upper_tokens    the most tokens they can have together
        request_digest  of its bytes; empty: the reply's key
        run_id          of the workflow run that asks
        turn_digest     names the turn that has one reply, whatever the bytes; empty: the bytes alone tell
        """
        line = {
            "intent": request_id,
            "reply": reply_key,
            "asked": request_digest or reply_key,
            "run": run_id,
            **({"turn": turn_digest} if turn_digest else {}),
            "upper_usd": upper_usd,
            "upper_tokens": upper_tokens,
        }
        append_json_line(self._path, line, sync=True)

    def record_settlement(self, request_id: str, usage: Usage) -> None:
        """Append that the reply has arrived whole, with its usage. Not synced: the reply, stored before, tells it."""
        append_json_line(self._path, _settlement_line(request_id, usage.model_dump(mode="json")), sync=False)

    def record_refusal(self, request_id: str) -> None:
        """Append that the API refused the request before it began a reply, so that nothing was billed; fsynced."""
        append_json_line(self._path, {"void": request_id}, sync=True)

    def include_log(self, other: SpendLog) -> None:
        """Append all lines of another delivery's log: what was paid for a task was paid for its delivery. Called twice
        it appends them twice, but each request still counts once, by its name, whatever was written of it in
        between."""
        if lines := list(other._read_entries()):
            append_json_line(self._path, *lines, sync=True)

    def is_settled(self, request_id: str) -> bool:
        """Return whether this request's reply has arrived whole."""
        return any(line.get("settled") == request_id for line in self._read_entries())

    def count_cut_off(self, reply_key: str, run_id: str) -> int:
        """Count the requests of this run for this reply that were neither settled nor refused: each may have been
        billed. A retry that somebody asked for is another run, and begins to count anew."""
        lines = list(self._read_entries())
        ended = {line.get("settled") or line.get("void") for line in lines}
        intents = (line for line in lines if line.get("reply") == reply_key and line.get("run", "") == run_id)
        return sum(1 for line in intents if line["intent"] not in ended)

    def settled_usages(self) -> list[Usage]:
        """Return the usage of each reply that has arrived whole, in the order of its first settlement."""
        usages: dict[str, Usage] = {}
        for line in self._read_entries():
            if "settled" in line:
                usages.setdefault(line["settled"], Usage.model_validate(line["usage"]))
        return list(usages.values())

    def total_spend(self) -> Spend:
        """Sum up what was spent: settled replies at their price, and apart from them the open requests at their upper
        bound. Where a price is unknown, `usd` is None and `known_usd` has the sum of the known ones. Lines of a version
        that did not write tokens down have none."""
        settled: dict[str, Usage] = {}
        open_intents: dict[str, tuple[float | None, int]] = {}
        for line in self._read_entries():
            if "intent" in line:
                open_intents[line["intent"]] = line["upper_usd"], line.get("upper_tokens", 0)
            elif "settled" in line:  # by two attempts, when one slept between writing the reply down and settling it
                open_intents.pop(line["settled"], None)
                settled[line["settled"]] = Usage.model_validate(line["usage"])
            elif "void" in line:
                open_intents.pop(line["void"], None)
        costs, bounds = [usage.cost_usd for usage in settled.values()], [usd for usd, _ in open_intents.values()]
        known, unknown = round(sum(cost or 0.0 for cost in costs), 6), None in (*costs, *bounds)
        return Spend(
            usd=None if unknown else known,
            known_usd=known if unknown else 0.0,
            at_risk_usd=round(sum(bound or 0.0 for bound in bounds), 6),
            tokens=sum(usage.tokens for usage in settled.values()),
            at_risk_tokens=sum(tokens for _, tokens in open_intents.values()),
        )

    def count_repeats(self) -> tuple[int, int]:
        """Return (replies paid twice, replies cut off and possibly billed), over all runs.

        A reply was paid twice when a request with the same bytes, or for the same turn, was settled before: an agent
        that is started again may send a word more, and of two replies for one turn one is too many. The keys under
        which replies are stored are not compared: two settlements under one key are what that store prevents. Cut off
        is a request that is neither settled nor recorded as refused.
        """
        digests: dict[str, set[str]] = {}
        settled: dict[str, None] = {}
        unsettled: set[str] = set()
        for line in self._read_entries():
            if "intent" in line:
                digests[line["intent"]] = {line.get("asked", line["reply"]), line.get("turn", "")} - {""}
                unsettled.add(line["intent"])
            elif "settled" in line:
                unsettled.discard(line["settled"])
                settled[line["settled"]] = None
            elif "void" in line:
                unsettled.discard(line["void"])
        seen: set[str] = set()
        twice = 0
        for request in settled:
            own_digests = digests.get(request, {request})
            twice += not seen.isdisjoint(own_digests)
            seen |= own_digests
        return twice, len(unsettled)

    def _read_entries(self) -> Iterator[dict[str, Any]]:
        """Yield every whole line as an object, after those of replies that were stored and never settled."""
        _settle_stored_replies(self._directory)
        return read_json_lines(self._path)


def _settlement_line(request_id: str, usage: dict[str, Any]) -> dict[str, Any]:
    """Return the line of the spend log that settles a request."""
    return {"settled": request_id, "usage": usage}


@lru_cache(4096)
def _settle_stored_replies(directory: Path) -> None:
    """Append the settlements that a power cut took: those of stored replies that the spend log does not know. Once a
    process is enough, for a power cut ends all of them."""
    log = directory / "spend.jsonl"
    settled = {line.get("settled") for line in read_json_lines(log)}
    for stored in _stored_replies(directory):
        if stored.get("request") not in settled and "usage" in stored:
            append_json_line(log, _settlement_line(stored["request"], stored["usage"]), sync=True)


def _stored_replies(directory: Path, key: str = "") -> Iterator[dict[str, Any]]:
    """Yield what a delivery's `replies.jsonl` holds, the newest first; with a key what is under it alone, and no other
    line is parsed."""
    try:
        data = (directory / _REPLIES).read_bytes()
    except FileNotFoundError:
        return
    begin = b'{"key": ' + (json.dumps(key).encode() + b"," if key else b'"')
    position = len(data)
    while (position := data.rfind(begin, 0, position)) >= 0:
        if position == 0 or data[position - 1 : position] == b"\n":
            with suppress(ValueError, KeyError, TypeError):  # torn by a death, or damaged
                stored = json.loads(data[position:].partition(b"\n")[0])["stored"]
                yield dict(stored)


_REPLIES = "replies.jsonl"


class ReplyStore:
    """`replies.jsonl` of one delivery, a line a reply, fsynced. The key covers step, attempt, turn and request bytes,
    and the rewind behind it: a retry finds what was bought, a rewound run samples anew, a changed request is another
    question. The key does not cover the checkpoint: a turn done again makes another checkpoint with the same content,
    and the replies of the turns after it were bought."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what was received under this key, whole: the reply's JSON, the request that paid for it and its usage;
        None when there is none, or its line is damaged."""
        return next(_stored_replies(self._directory, key), None)

    def put(self, key: str, reply: dict[str, Any]) -> None:
        """Append a reply under this key, so that it survives a power cut."""
        append_json_line(self._directory / _REPLIES, {"key": key, "stored": reply}, sync=True)

    def require_free_disk(self) -> None:
        """Raise DiskFull when a reply could not be kept: it would be paid for again. Makes the directory where it is
        missing."""
        make_directory(self._directory)
        if shutil.disk_usage(self._directory).free < DISK_FREE_BYTES:
            raise disk_full_error(str(self._directory))


_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, is a disk without room: in our own writes or in git's."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if isinstance(error, GitError) and ("No space left" in error.stderr or "quota exceeded" in error.stderr):
            return True
        error = error.__cause__
    return False


def disk_full_error(where: str = "") -> DiskFull:
    """Return the error with which a step waits until there is room on the disk."""
    return DiskFull("this host's disk has no room", where=where, fix=MAKE_ROOM)

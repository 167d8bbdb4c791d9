"""The spend log of a delivery: append-only, outside any run, so that a rewind cannot make paid turns free."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.adapters.system.files import append_line
from perdure.adapters.worker.journal import read_json_lines
from perdure.models.ledger import Spend, Usage


class SpendLog:
    """`spend.jsonl` of one delivery: an intent before every request, a settlement after its reply, both fsynced."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "spend.jsonl"

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
        append_line(self._path, json.dumps(line).encode(), sync=True)

    def record_settlement(self, request_id: str, usage: Usage) -> None:
        """Append that the reply has arrived whole, with its usage; fsynced."""
        line = {"settled": request_id, "usage": usage.model_dump(mode="json")}
        append_line(self._path, json.dumps(line).encode(), sync=True)

    def record_refusal(self, request_id: str) -> None:
        """Append that the API refused the request before it began a reply, so that nothing was billed; fsynced."""
        append_line(self._path, json.dumps({"void": request_id}).encode(), sync=True)

    def include_log(self, other: SpendLog) -> None:
        """Append all lines of another delivery's log: what was paid for a task was paid for its delivery. Calling it
        twice is fine: each request counts once, by its name, whatever was written of it in between."""
        for line in read_json_lines(other._path):
            append_line(self._path, json.dumps(line).encode(), sync=True)

    def is_settled(self, request_id: str) -> bool:
        """Return whether this request's reply has arrived whole."""
        return any(line.get("settled") == request_id for line in read_json_lines(self._path))

    def count_cut_off(self, reply_key: str, run_id: str) -> int:
        """Count the requests of this run for this reply that were neither settled nor refused: each may have been
        billed. A retry that somebody asked for is another run, and begins to count anew."""
        lines = list(read_json_lines(self._path))
        ended = {line.get("settled") or line.get("void") for line in lines}
        intents = (line for line in lines if line.get("reply") == reply_key and line.get("run", "") == run_id)
        return sum(1 for line in intents if line["intent"] not in ended)

    def settled_usages(self) -> list[Usage]:
        """Return the usage of each reply that has arrived whole, in the order of its first settlement."""
        usages: dict[str, Usage] = {}
        for line in read_json_lines(self._path):
            if "settled" in line:
                usages.setdefault(line["settled"], Usage.model_validate(line["usage"]))
        return list(usages.values())

    def total_spend(self) -> Spend:
        """Sum up what was spent: settled replies at their price, and apart from them the open requests at their upper
        bound. Lines of a version that did not write tokens down have none."""
        settled: dict[str, Usage] = {}
        open_intents: dict[str, tuple[float | None, int]] = {}
        for line in read_json_lines(self._path):
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

        Paid twice is what was asked in the same bytes and settled more than once, wherever in the delivery and by
        whichever run: not by the key under which a reply is looked for, which would be right by its own making. An
        agent that is started again may send a word more: of two replies for one turn one is too many, whatever was
        asked.
        """
        digests: dict[str, set[str]] = {}
        settled: dict[str, None] = {}
        unsettled: set[str] = set()
        for line in read_json_lines(self._path):
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

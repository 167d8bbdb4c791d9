"""The spend log of a delivery: append-only, outside any run, so that a rewind cannot make paid turns free."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.adapters.system.files import append_line
from perdure.adapters.worker.journal import read_lines
from perdure.models.ledger import Spend, Usage


class SpendLog:
    """`spend.jsonl` of one delivery: an intent before every request, a settlement after its reply, both fsynced."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "spend.jsonl"

    def intend(
        self,
        request: str,
        reply: str,
        upper_usd: float | None,
        upper_tokens: int = 0,
        *,
        asked: str = "",
        run: str = "",
        turn: str = "",
    ) -> None:
        """`request` names this very request, `reply` the reply it asks for, `asked` its bytes, `run` the run that asks,
        `turn` the turn that has one reply, whatever the bytes; `upper_…`: the most that both together can cost (None:
        price unknown), and the most tokens they can have."""
        line = {
            "intent": request,
            "reply": reply,
            "asked": asked or reply,
            "run": run,
            **({"turn": turn} if turn else {}),
            "upper_usd": upper_usd,
            "upper_tokens": upper_tokens,
        }
        append_line(self._path, json.dumps(line).encode(), sync=True)

    def settle(self, request: str, usage: Usage) -> None:
        """The reply has arrived whole."""
        line = {"settled": request, "usage": usage.model_dump(mode="json")}
        append_line(self._path, json.dumps(line).encode(), sync=True)

    def void(self, request: str) -> None:
        """The API refused the request before it began a reply: nothing was billed."""
        append_line(self._path, json.dumps({"void": request}).encode(), sync=True)

    def take_in(self, other: SpendLog) -> None:
        """Write down what another log has: what was paid for a task was paid for its delivery. Twice is fine: each
        request counts by its name, whatever was written of it in between."""
        for line in read_lines(other._path):
            append_line(self._path, json.dumps(line).encode(), sync=True)

    def is_settled(self, request: str) -> bool:
        return any(line.get("settled") == request for line in read_lines(self._path))

    def cut(self, reply: str, run: str) -> int:
        """The number of requests of this run for this reply that were neither settled nor refused: each may have been
        billed. A retry, which somebody has asked for, begins to count anew."""
        lines = list(read_lines(self._path))
        done = {line.get("settled") or line.get("void") for line in lines}
        mine = (line for line in lines if line.get("reply") == reply and line.get("run", "") == run)
        return sum(1 for line in mine if line["intent"] not in done)

    def settled(self) -> list[Usage]:
        """Return the cost of each reply that has arrived whole, in the order of its first settlement."""
        found: dict[str, Usage] = {}
        for line in read_lines(self._path):
            if "settled" in line:
                found.setdefault(line["settled"], Usage.model_validate(line["usage"]))
        return list(found.values())

    def total(self) -> Spend:
        """Settled replies at their price, the others at their upper bound, shown apart. Lines of a version that did
        not write tokens down have none."""
        settled: dict[str, Usage] = {}
        open_intents: dict[str, tuple[float | None, int]] = {}
        for line in read_lines(self._path):
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

    def repeats(self) -> tuple[int, int]:
        """(replies paid twice, replies cut off and possibly billed), over all runs.

        Paid twice is what was asked in the same bytes and settled more than once, wherever in the delivery and by
        whichever run: not by the name under which a reply is looked for, which would be right by its own making. An
        agent that is begun again says a word more: of its turns two replies are one too many, whatever was asked.
        """
        asked: dict[str, set[str]] = {}
        settled: dict[str, None] = {}
        unsettled: set[str] = set()
        for line in read_lines(self._path):
            if "intent" in line:
                asked[line["intent"]] = {line.get("asked", line["reply"]), line.get("turn", "")} - {""}
                unsettled.add(line["intent"])
            elif "settled" in line:
                unsettled.discard(line["settled"])
                settled[line["settled"]] = None
            elif "void" in line:
                unsettled.discard(line["void"])
        seen: set[str] = set()
        twice = 0
        for request in settled:
            names = asked.get(request, {request})
            twice += not seen.isdisjoint(names)
            seen |= names
        return twice, len(unsettled)

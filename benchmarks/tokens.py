"""The share of a conversation's input that is read from the cache: ours, and the same loop without our marks.

Real requests over HTTP to the rehearsal, whose cache follows the documented rules (perdure/rehearsal/record.py) on
tokens counted as bytes / 4; real tools in a directory. The same figures come out on any machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from perdure.adapters.agents.builtin.conversation import (
    RunTools,
    decide_next,
    known_file_versions,
    model_request_for,
    opening_message,
    results_message,
)
from perdure.adapters.agents.builtin.model import Model, ModelRequest
from perdure.adapters.agents.builtin.repository_map import build_map
from perdure.adapters.agents.builtin.tools import Toolbox, run_calls
from perdure.adapters.sandbox.environment import Binds
from perdure.adapters.sandbox.grades import OffSandbox
from perdure.adapters.system.home import Home
from perdure.models.budget.ledger import Usage
from perdure.models.config.repository import RepositoryConfig, TestCommand
from perdure.models.delivery.turn import Contract, Note
from perdure.models.phases import Step
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal

TARGET, ROUNDING = 0.9, 0.005
TURNS = (10, 30, 60)
CALLS = {"serial": 1, "parallel": 12}
"""Tool calls in one reply: one, and twelve at once in the first third of the turns, which look-ups are; then one."""

CACHE_MINIMUM = 512
"""Tokens of the smallest prompt that the 5.5 models cache."""

LINES = 120
"""Of each file that is read, some 4 KB."""

CONTRACT = Contract(
    delivery="bench",
    repository="r",
    request="Accept compound durations such as '1h30m' wherever a duration is read.",
    base="main",
    base_sha="4be1c02",
    branch="perdure/bench",
    config=RepositoryConfig(version=1, test=(TestCommand(command="python3 -m unittest -q"),)),
    notes=(Note(path="AGENTS.md", text="Use four spaces. Keep functions short. " * 20),),
)


@dataclass(frozen=True)
class Automatic(ModelRequest):
    """The same request with the one mark that the API sets by itself at the end, where it is asked to."""

    def body(self) -> bytes:
        body = json.loads(super().body())
        body["system"] = [_unmarked(block) for block in body["system"]]
        for message in body["messages"]:
            message["content"] = [_unmarked(block) for block in message["content"]]
        return json.dumps(body).encode()


@dataclass(frozen=True)
class Bare(Automatic):
    """The same request with no mark at all."""

    def body(self) -> bytes:
        return json.dumps(_unmarked(json.loads(super().body()))).encode()


def _unmarked(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "cache_control"}


LOOPS: dict[str, type[ModelRequest]] = {"ours": ModelRequest, "only the automatic mark": Automatic, "no mark": Bare}


def screenplay(turns: int, parallel: int) -> str:
    lines = ['title = "tokens"', f"cache_minimum = {CACHE_MINIMUM}"]
    for turn in range(1, turns):
        many = parallel if turn <= turns // 3 else 1
        uses = ", ".join(_use(turn * 10 + number) for number in range(many))
        said = "I look at what reads this, then at what it gives back, before I change anything here."
        lines += ["[[line]]", f"turn = {turn}", f'say = "{turn}: {said}"', f"use = [{uses}]"]
    return "\n".join([*lines, "[[line]]", 'say = "Accept compound durations"', ""])


def _use(number: int) -> str:
    if number % 3:
        return f'{{ tool = "read", input = {{ path = "src/f{number % 40}.py", offset = {number % 20 + 1} }} }}'
    return f'{{ tool = "bash", input = {{ command = "seq {number} {number + 300}" }} }}'


def make_files(root: Path) -> dict[str, bytes]:
    text = "".join(f"def function_{n}(text):\n    return text.strip()\n" for n in range(LINES // 2))
    files = {f"src/f{n}.py": f"# {n}\n{text}".encode() for n in range(40)}
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return files


async def conversation(turns: int, parallel: int, shaped: Callable[[ModelRequest], ModelRequest]) -> list[Usage]:
    """The usage of each reply of one step."""
    with tempfile.TemporaryDirectory(prefix="perdure-tokens-") as scratch:
        root = Path(scratch) / "tree"
        files = make_files(root)
        shown = build_map(files, lambda paths: {path: files[path] for path in paths})
        sandbox = OffSandbox(Home(Path(scratch) / "home"), Binds(path=("/usr/bin", "/bin")))
        box = Toolbox(root, sandbox, Path(scratch) / "logs", check=lambda: None)
        async with Rehearsal(Screenplay.parse(screenplay(turns, parallel))) as twin:
            model = Model("sk-rehearsal-0123456789", twin.url)
            try:
                return await _taken(model, box, shaped, shown)
            finally:
                await model.aclose()


async def _taken(model: Model, box: Toolbox, shaped: Callable[[ModelRequest], ModelRequest], shown: str) -> list[Usage]:
    transcript: list[dict[str, Any]] = [opening_message(Step.IMPLEMENT, CONTRACT, {"repository": shown})]
    found: list[Usage] = []
    while True:
        transcript = json.loads(json.dumps(transcript, sort_keys=True))
        question = shaped(model_request_for(Step.IMPLEMENT, CONTRACT, transcript))
        reply = await model.ask(question, on_first_event=lambda: None, on_text=lambda text: None)
        found.append(reply.usage)
        if not isinstance(decide_next(Step.IMPLEMENT, reply, transcript), RunTools):
            return found
        transcript.append(reply.message)
        box.read_files = known_file_versions(transcript)
        transcript.append(results_message(await run_calls(reply.message, box, Step.IMPLEMENT), transcript))


def share(usages: Sequence[Usage]) -> float:
    """Of all input, cached or not."""
    total = sum(usages, Usage())
    return total.cache_read_tokens / total.prompt_tokens


def possible(usages: Sequence[Usage]) -> float:
    """The share if each request found all of the one before: what is new has to be written once."""
    prompts = [usage.prompt_tokens for usage in usages]
    return sum(prompts[:-1]) / sum(prompts)


def reshaped(kind: type[ModelRequest]) -> Callable[[ModelRequest], ModelRequest]:
    return lambda question: kind(**{field.name: getattr(question, field.name) for field in fields(question)})


async def measured(turns: Sequence[int]) -> bool:
    """Print the table; True where our share reaches the target in every row in which that is possible."""
    print("| | " + " | ".join(LOOPS) + " | the most possible | cost: ours, automatic, none |")
    print("|---" * (len(LOOPS) + 3) + "|")
    good = True
    for number in turns:
        for name, calls in CALLS.items():
            runs = {loop: await conversation(number, calls, reshaped(kind)) for loop, kind in LOOPS.items()}
            shares = {loop: share(usages) for loop, usages in runs.items()}
            costs = ", ".join(f"${sum((one.cost_usd or 0.0) for one in usages):.2f}" for usages in runs.values())
            most = possible(runs["ours"])
            good = good and shares["ours"] >= min(TARGET, most - ROUNDING)
            cells = " | ".join(f"{value:.3f}" for value in (*shares.values(), most))
            print(f"| {number} turns, {name} | {cells} | {costs} |", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, nargs="*", default=TURNS)
    given = parser.parse_args()
    if asyncio.run(measured(given.turns)):
        return 0
    print(f"under the target of {TARGET}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""Background commands of the bash tool: a server under test, and commands beside it, until the reply's calls are done.

Each has a sandbox of its own, which is no way to others: commands beside it run inside it, started there by a small
loop that looks into a directory it can only read. What they write comes back in the sandbox's one output, with marks.
The repository is read-only there, so that no process that lives between two calls can change a path under the hands of
the file tools (perdure.adapters.agents.builtin.tools.paths).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.agents.builtin.tools.base import Toolbox
from perdure.adapters.agents.builtin.tools.paths import ToolError
from perdure.adapters.agents.text import middle_out
from perdure.adapters.sandbox.base import Finished
from perdure.adapters.sandbox.output import clean
from perdure.adapters.system.threads import in_thread
from perdure.models.config import SandboxGrade
from perdure.models.limits import TOOL_OUTPUT_HEAD, TOOL_OUTPUT_TAIL
from perdure.text import one_line

BACKGROUND_MOST = 3
"""At once: a server, what it needs, and one to spare."""

BACKGROUND_LOOK_S = 0.5
"""After a start, for the first words of what was started, or its end."""

BACKGROUND_TIMEOUT_S = 900.0
"""For one: longer than the longest command beside it."""

_POLL_S = 0.05
_GRACE_S = 5.0
"""For a command beside it to be started, ended when its time is over, and told."""

_SHOWN = TOOL_OUTPUT_HEAD + TOOL_OUTPUT_TAIL

_LOOP = """
bash "$at/0.sh" </dev/null &
server=$!
number=1
while :; do
  if [ -f "$at/$number.sh" ]; then
    said=$(timeout -k 1 "$(cat "$at/$number.s")" bash "$at/$number.sh" 2>&1 </dev/null; printf '\\n%s' "$?")
    code=${said##*$'\\n'}
    said=${said%$'\\n'*}
    lives=$(kill -0 "$server" 2>/dev/null && echo 1 || echo 0)
    [ ${#said} -le 60000 ] || said=${said: -60000}
    printf '\\n%s begin %s\\n%s\\n%s end %s %s %s\\n' "$mark" $number "$said" "$mark" $number "$code" "$lives"
    number=$((number + 1))
  else
    sleep 0.05
  fi
done
"""


@dataclass
class Background:
    """One that was started. `at`: what the loop looks into; `mark` parts its output; `read`: bytes shown so far."""

    handle: str
    at: Path
    output: Path
    mark: str
    run: asyncio.Task[Finished]
    number: int = 0
    read: int = 0

    async def beside(self, script: str, within_s: float) -> str:
        """Run a command in the same sandbox; its verdict and output, then what the first one wrote meanwhile."""
        self.number += 1
        await in_thread(self._put, script, within_s)
        end = re.compile(
            rf"^{self.mark} begin {self.number}\n(.*)\n{self.mark} end {self.number} (\d+) ([01])$", re.M | re.S
        )
        deadline = time.monotonic() + within_s + _GRACE_S
        while (found := end.search(await in_thread(self._text))) is None:
            if self.run.done() or time.monotonic() > deadline:
                return f"it did not end, or its sandbox is gone\n{await self.words()}"
            await asyncio.wait({self.run}, timeout=_POLL_S)
        code, lives = int(found[2]), found[3] == "1"
        verdict = (
            f"killed after {within_s:.0f} s: it did not end in time" if code in (124, 137) else f"exit code {code}"
        )
        said = middle_out(found[1].strip("\n"), _SHOWN) or "(no output)"
        gone = "" if lives else f"\n{self.handle} is not running any more."
        return f"{verdict}\n{said}{gone}\n{await self.words()}"

    async def words(self) -> str:
        """The background command's own output since it was last shown."""
        text = await in_thread(self._text)
        own = re.sub(rf"\n?^{self.mark} begin (\d+)\n.*?\n{self.mark} end \1 \d+ [01]\n", "", text, flags=re.M | re.S)
        fresh, self.read = own[self.read :], len(own)
        return f"[{self.handle} says:]\n{middle_out(fresh.strip(), _SHOWN) or '(nothing new)'}"

    async def stop(self) -> str:
        """End it and all that it started. Its last words."""
        said = await self.words()
        await over(self.run)
        return f"{self.handle} is stopped.\n{said}"

    def _put(self, script: str, within_s: float) -> None:
        """The directory is ours: nothing in the sandbox can write there."""
        (self.at / f"{self.number}.s").write_text(f"{within_s:g}")
        fresh = self.at / "fresh"
        fresh.write_text(script)
        os.replace(fresh, self.at / f"{self.number}.sh")

    def _text(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return clean(self.output.read_text(errors="replace"))
        return ""


async def start(box: Toolbox, script: str, output: Path) -> str:
    """Begin one; its handle and first words."""
    if box.sandbox.grade is not SandboxGrade.FULL:
        raise ToolError("background commands need the sandbox's full grade; run it and what uses it in one command")
    if sum(not one.run.done() for one in box.background.values()) >= BACKGROUND_MOST:
        raise ToolError(f"{BACKGROUND_MOST} commands run in the background already: stop one")
    at, mark = output.with_suffix(".d"), f"perdure-{secrets.token_hex(8)}"
    await in_thread(lambda: at.mkdir(parents=True, exist_ok=True))
    await in_thread((at / "0.sh").write_text, script)
    looping = f"at={shlex.quote(str(at))} mark={mark}\n{_LOOP}"
    command = box.command(looping, output, BACKGROUND_TIMEOUT_S, shown=(at,))
    handle = f"b{len(box.background) + 1}"
    run = asyncio.ensure_future(box.sandbox.run(command))
    one = box.background[handle] = Background(handle, at, output, mark, run)
    await asyncio.wait({run}, timeout=BACKGROUND_LOOK_S)
    if run.done():
        await in_thread(run.result().raise_for, command, f"{box.sandbox.grade} sandbox")
    box.on_spawn()
    return f"runs in the background as {handle}, until the calls of this reply are done\n{await one.words()}"


def found(box: Toolbox, handle: str) -> Background:
    one = box.background.get(handle)
    if one is None or one.run.done():
        running = [name for name, other in box.background.items() if not other.run.done()]
        there = f"there are {', '.join(running)}" if running else "start it first"
        raise ToolError(
            f"nothing runs as {one_line(handle, 20)}; {there}: what was started by an earlier reply has ended with it"
        )
    return one


async def end_all(box: Toolbox) -> None:
    """Whatever happens to us, all of them are dead before we return."""
    for one in box.background.values():
        await over(one.run)


async def over(run: asyncio.Future[Finished]) -> None:
    """Whatever happens to us, the command is dead before we return: nobody else would wait for it. Its error is seen:
    it has ended, and that is all that counts."""
    cancelled = False
    while not run.done():
        run.cancel()
        try:
            await asyncio.wait({run})
        except asyncio.CancelledError:
            cancelled = True
    if not run.cancelled():
        run.exception()
    if cancelled:
        raise asyncio.CancelledError

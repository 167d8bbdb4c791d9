"""A command that the agent started in the background, and the scripts that run beside it in its sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.sandbox.base import SandboxResult
from perdure.adapters.system.output import clean_output
from perdure.adapters.system.threads import in_thread
from perdure.models.limits import TOOL_OUTPUT_HEAD, TOOL_OUTPUT_TAIL
from perdure.text import cut_middle

_POLL_S = 0.05
_GRACE_S = 5.0
"""The time for a command beside it to be started, ended when its time is over, and reported."""

_SHOWN = TOOL_OUTPUT_HEAD + TOOL_OUTPUT_TAIL

BACKGROUND_LOOP = """
bash "$at/0.sh" </dev/null &
server=$!
number=1
while :; do
  if [ -f "$at/$number.sh" ]; then
    output=$(timeout -k 1 "$(cat "$at/$number.s")" bash "$at/$number.sh" 2>&1 </dev/null; printf '\\n%s' "$?")
    code=${output##*$'\\n'}
    output=${output%$'\\n'*}
    lives=$(kill -0 "$server" 2>/dev/null && echo 1 || echo 0)
    [ ${#output} -le 60000 ] || output=${output: -60000}
    printf '\\n%s begin %s\\n%s\\n%s end %s %s %s\\n' "$mark" $number "$output" "$mark" $number "$code" "$lives"
    number=$((number + 1))
  else
    sleep 0.05
  fi
done
"""
"""The program in the sandbox: it starts the background command, then runs each script that appears beside it."""


@dataclass
class BackgroundCommand:
    """A background command that was started, in a sandbox of its own.

    directory    holds the scripts that the loop in the sandbox looks for
    mark         tells the output of commands beside it from its own
    task         runs the sandbox
    number       of commands beside it so far
    shown_chars  characters of its own output that were shown so far
    """

    handle: str
    directory: Path
    output: Path
    mark: str
    task: asyncio.Task[SandboxResult]
    number: int = 0
    shown_chars: int = 0

    async def run_beside(self, script: str, within_s: float) -> str:
        """Run a script in the same sandbox and wait for its end, at most `within_s` seconds. Returns a text: its exit
        code and output, or that it was killed in the end or its sandbox is gone; then the new output of the background
        command, and that this one has ended where it has."""
        self.number += 1
        await in_thread(self._write_script, script, within_s)
        end = re.compile(
            rf"^{self.mark} begin {self.number}\n(.*)\n{self.mark} end {self.number} (\d+) ([01])$", re.M | re.S
        )
        deadline = time.monotonic() + within_s + _GRACE_S
        while (match := end.search(await in_thread(self._read_output))) is None:
            if self.task.done() or time.monotonic() > deadline:
                return f"it did not end, or its sandbox is gone\n{await self.show_new_output()}"
            await asyncio.wait({self.task}, timeout=_POLL_S)
        code, is_alive = int(match[2]), match[3] == "1"
        verdict = (
            f"killed after {within_s:.0f} s: it did not end in time" if code in (124, 137) else f"exit code {code}"
        )
        output = cut_middle(match[1].strip("\n"), _SHOWN) or "(no output)"
        ending = "" if is_alive else f"\n{self.handle} is not running any more."
        return f"{verdict}\n{output}{ending}\n{await self.show_new_output()}"

    async def show_new_output(self) -> str:
        """Return the background command's own output since it was last shown, which then counts as shown."""
        text = await in_thread(self._read_output)
        own = re.sub(rf"\n?^{self.mark} begin (\d+)\n.*?\n{self.mark} end \1 \d+ [01]\n", "", text, flags=re.M | re.S)
        unseen, self.shown_chars = own[self.shown_chars :], len(own)
        return f"[{self.handle} says:]\n{cut_middle(unseen.strip(), _SHOWN) or '(nothing new)'}"

    async def stop(self) -> str:
        """Kill the command and all that it started, and return its last output."""
        last_output = await self.show_new_output()
        await cancel_and_wait(self.task)
        return f"{self.handle} is stopped.\n{last_output}"

    def _write_script(self, script: str, within_s: float) -> None:
        """Write a script and its time limit for the loop in the sandbox, which starts it. The directory is ours:
        nothing in the sandbox can write there."""
        (self.directory / f"{self.number}.s").write_text(f"{within_s:g}")
        temporary = self.directory / "fresh"
        temporary.write_text(script)
        os.replace(temporary, self.directory / f"{self.number}.sh")

    def _read_output(self) -> str:
        """Return all output of the sandbox so far; empty before it has any."""
        with contextlib.suppress(FileNotFoundError):
            return clean_output(self.output.read_text(errors="replace"))
        return ""


async def cancel_and_wait(task: asyncio.Future[SandboxResult]) -> None:
    """Cancel a sandbox's task and wait until its command is dead, because nobody else would; then raise CancelledError
    if that was cancelled meanwhile. The command's own error is ignored: it has ended, and that is all that counts."""
    cancelled = False
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if not task.cancelled():
        task.exception()
    if cancelled:
        raise asyncio.CancelledError

"""The work of a delivery as a short asyncio script does it: the other side of `make bench-parallel`.

`plain.py ORIGIN URL MANY RUNS`: MANY times at once a worktree of one mirror, the model asked over the same client, what
it asks for run in a shell, a commit after each turn, the test command RUNS times on clean checkouts, a push. Nothing of
it would survive a kill. Prints one line of JSON: seconds, processor seconds (its children's, too), calls of git.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anthropic

TOOL = {
    "name": "bash",
    "description": "Run a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
TEST = "python3 -m unittest -q"
calls = 0
alone = asyncio.Lock()
"""`git worktree` is not safe in parallel, beside a fetch neither: fifteen at once were seen to fail."""


async def shell(command: str, cwd: Path) -> str:
    started = await asyncio.create_subprocess_exec(
        "/bin/bash", "-c", command, cwd=cwd, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await started.communicate()
    return out.decode(errors="replace")


async def git(cwd: Path, *args: str) -> None:
    async with alone if args[0] in ("worktree", "fetch") else contextlib.nullcontext():
        await _git(cwd, *args)


async def _git(cwd: Path, *args: str) -> None:
    global calls
    calls += 1
    named = ("-c", "user.name=Plain", "-c", "user.email=plain@localhost", "-c", "core.fsync=all", "-c", "gc.auto=0")
    started = await asyncio.create_subprocess_exec(
        "git", *named, *args, cwd=cwd, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, err = await started.communicate()
    assert started.returncode == 0, (args, err)


async def begin(root: Path, number: int) -> None:
    mirror, tree = root / "mirror", root / f"tree-{number}"
    await git(mirror, "fetch", "-q", "origin", "main")
    await git(mirror, "worktree", "add", "-q", "--no-track", "-b", f"plain-{number}", str(tree), "origin/main")


async def turn(client: anthropic.AsyncAnthropic, root: Path, number: int, messages: list[Any]) -> list[Any]:
    """All messages after it; none when the model asks for nothing more."""
    tree = root / f"tree-{number}"
    async with client.messages.stream(
        model="claude-sonnet-5-5", max_tokens=1000, system="Step: implement\n\nWork.", tools=[TOOL],
        messages=messages,
    ) as stream:  # fmt: skip
        reply = await stream.get_final_message()
    content = [block.to_dict() for block in reply.content]
    asked = [block for block in content if block["type"] == "tool_use"]
    if not asked:
        return []
    said = [(block["id"], await shell(block["input"]["command"], tree)) for block in asked]
    results = [{"type": "tool_result", "tool_use_id": id, "content": out or "-"} for id, out in said]
    await git(tree, "add", "-A")
    await git(tree, "commit", "-q", "--allow-empty", "-m", "turn")
    return [*messages, {"role": "assistant", "content": content}, {"role": "user", "content": results}]


async def tests(root: Path, number: int, run: int) -> None:
    tree, clean = root / f"tree-{number}", root / f"clean-{number}-{run}"
    await git(tree, "worktree", "add", "-q", "--detach", str(clean), "HEAD")
    out = await shell(TEST, clean)
    assert "OK" in out, out
    await git(tree, "worktree", "remove", "--force", str(clean))


async def push(root: Path, number: int) -> None:
    tree = root / f"tree-{number}"
    await git(tree, "reset", "-q", "--soft", "origin/main")
    await git(tree, "commit", "-q", "-m", "Add sub")
    await git(tree, "push", "-q", "--force", "origin", f"plain-{number}")


async def delivery(client: anthropic.AsyncAnthropic, root: Path, number: int, runs: int) -> None:
    await begin(root, number)
    messages: list[Any] = [{"role": "user", "content": "Add sub"}]
    while messages:
        messages = await turn(client, root, number, messages)
    for run in range(runs):
        await tests(root, number, run)
    await push(root, number)


async def ground(root: Path, origin: str) -> Path:
    """With a mirror of the origin."""
    await git(root, "clone", "-q", "--no-checkout", origin, "mirror")
    await git(root / "mirror", "config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    return root


async def main(origin: str, url: str, many: int, runs: int) -> None:
    client = anthropic.AsyncAnthropic(api_key="rehearsal", base_url=url, max_retries=0)
    with tempfile.TemporaryDirectory(prefix="bench-plain-") as scratch:
        root = await ground(Path(scratch), origin)
        began = time.perf_counter()
        await asyncio.gather(*(delivery(client, root, number, runs) for number in range(many)))
        took = time.perf_counter() - began
    await client.close()
    used = os.times()
    cpu = used.user + used.system + used.children_user + used.children_system - STARTED
    print(json.dumps({"seconds": took, "cpu": cpu, "git": calls / many}))


if __name__ == "__main__":
    begun = os.times()
    STARTED = begun.user + begun.system
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))

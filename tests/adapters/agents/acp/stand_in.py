"""A small agent of the Agent Client Protocol: asks the model, does what it says, and remembers its session in a file.

Run as a script. `ANTHROPIC_BASE_URL` is its model; the first argument is a way to misbehave, empty for none.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, Agent, run_agent, start_tool_call, update_agent_message_text
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
)

HOW = sys.argv[1] if len(sys.argv) > 1 else ""
TOOLS = [{"name": name, "description": name, "input_schema": {"type": "object"}} for name in ("write", "bash")]
OPTIONS = [
    PermissionOption(option_id="switch_mode", name="Always", kind="allow_once"),
    PermissionOption(option_id="proceed_once", name="Yes", kind="allow_once"),
    PermissionOption(option_id="cancel", name="No", kind="reject_once"),
]


class StandIn(Agent):
    client: Client

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.cancelled = asyncio.Event()

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, client_capabilities: Any = None, **_: Any) -> InitializeResponse:
        Path(os.environ["HOME"], "declared.json").write_text(client_capabilities.model_dump_json(by_alias=True))
        version = 7 if HOW == "version" else PROTOCOL_VERSION
        return InitializeResponse(
            protocol_version=version, agent_capabilities=AgentCapabilities(load_session=HOW != "forgets")
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id="the-session")

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        self.messages = json.loads(Path(os.environ["HOME"], f"{session_id}.json").read_text())
        return LoadSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        if HOW != "deaf":
            self.cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        self.cancelled.clear()
        if HOW == "dies":
            os._exit(3)
        if HOW == "flood":
            os.set_blocking(1, True)
            print("x" * 17 * 1024 * 1024, flush=True)
        if HOW in ("slow", "deaf"):
            await self.client.session_update(session_id, update_agent_message_text("I think."))
            await self.cancelled.wait()
            return PromptResponse(stop_reason="cancelled")
        if HOW == "reads":
            try:
                await self.client.read_text_file(session_id=session_id, path="/etc/passwd")
            except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
                await self.client.session_update(session_id, update_agent_message_text(str(error)))
            return PromptResponse(stop_reason="end_turn")
        told = {"type": "text", "text": prompt[0].text}
        if self.messages and self.messages[-1]["role"] == "user":  # it was ended before the model had answered
            self.messages[-1]["content"].append(told)
        else:
            self.messages.append({"role": "user", "content": [told]})
        while True:
            asked = asyncio.ensure_future(asyncio.to_thread(ask, self.messages))
            stopped = asyncio.ensure_future(self.cancelled.wait())
            await asyncio.wait({asked, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                Path("cancelled.txt").touch()
                return PromptResponse(stop_reason="cancelled")
            stopped.cancel()
            reply = await asked
            self.messages.append({"role": "assistant", "content": reply["content"]})
            for block in reply["content"]:
                if block["type"] == "text":
                    await self.client.session_update(session_id, update_agent_message_text(block["text"]))
            results = [await self.tool(session_id, block) for block in reply["content"] if block["type"] == "tool_use"]
            if results:
                self.messages.append({"role": "user", "content": results})
            Path(os.environ["HOME"], f"{session_id}.json").write_text(json.dumps(self.messages))
            if not results:
                return PromptResponse(stop_reason="end_turn")

    async def tool(self, session_id: str, block: dict[str, Any]) -> dict[str, Any]:
        print("adapter: a line that is no message", flush=True)
        await self.client.session_update(session_id, start_tool_call(block["id"], "write", kind="edit"))
        call = ToolCallUpdate(tool_call_id=block["id"], kind="edit")
        answer = await self.client.request_permission(session_id=session_id, tool_call=call, options=OPTIONS)
        chosen = getattr(answer.outcome, "option_id", "")
        if chosen != "proceed_once":
            return {"type": "tool_result", "tool_use_id": block["id"], "content": chosen, "is_error": True}
        if block["name"] == "bash":
            words = ["bash", "-c", block["input"]["command"]]
            child = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            stopped = asyncio.ensure_future(self.cancelled.wait())
            ran = asyncio.ensure_future(child.communicate())
            await asyncio.wait({ran, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                child.kill()
            stopped.cancel()
            said, _ = await ran
            return {"type": "tool_result", "tool_use_id": block["id"], "content": said.decode() or "done"}
        path = Path(block["input"]["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block["input"]["content"])
        return {"type": "tool_result", "tool_use_id": block["id"], "content": "written"}


def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = {"model": "claude-sonnet-5-5", "max_tokens": 4096, "tools": TOOLS, "messages": messages}
    headers = {"x-api-key": "placeholder", "anthropic-version": "2023-06-01", "content-type": "application/json"}
    url = f"{os.environ['ANTHROPIC_BASE_URL']}/v1/messages"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def main() -> None:
    if HOW == "garbage":
        for number in range(5000):
            print(f"line {number} of a program that is something else", flush=True)
        sys.stdin.read()
    if HOW == "odd":
        for line in ("1", "null", "[]", '{"id": [1]}', '{"method": 3}', "{" * 5000, '{"jsonrpc": "2.0", "id": 99}'):
            print(line, flush=True)
    asyncio.run(run_agent(StandIn()))


if __name__ == "__main__":
    main()

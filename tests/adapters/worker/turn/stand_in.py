"""An agent of the tests that speaks the Anthropic wire, runs `bash`, and lies in the way its first word says.

Standard library only: it runs as a program in the sandbox. Words: the way, the session, `resumed` or nothing; the ways
`speaks` and `babbles` are those of the Agent Client Protocol.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TOOL = {"name": "bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}
MEMORY = Path(os.environ["HOME"]) / "session.json"


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = {"model": "claude-sonnet-5-5", "max_tokens": 1000, "messages": messages, "tools": [TOOL]}
    headers = {"content-type": "application/json", "x-api-key": "placeholder", "anthropic-version": "2023-06-01"}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        reply: dict[str, Any] = json.load(answer)
    return reply


def work(messages: list[dict[str, Any]], way: str) -> str:
    while True:
        reply = ask(messages)
        messages.append({"role": "assistant", "content": reply["content"]})
        calls = [block for block in reply["content"] if block["type"] == "tool_use"]
        if not calls:
            return "".join(block.get("text", "") for block in reply["content"])
        results = []
        for call in calls:
            ran = subprocess.run(["bash", "-c", call["input"]["command"]], capture_output=True, text=True, check=False)
            results.append({"type": "tool_result", "tool_use_id": call["id"], "content": ran.stdout + ran.stderr})
        messages.append({"role": "user", "content": results})
        MEMORY.write_text(json.dumps(messages))
        if way == "floods":
            while True:
                sys.stdout.write("x" * 65536)
        if way == "orphan":
            writes = (
                "import time, pathlib\nwhile True: pathlib.Path('orphan.txt').open('a').write('x'); time.sleep(.01)"
            )
            subprocess.Popen([sys.executable, "-c", writes], start_new_session=True)


class Speaker:
    """One session of the Agent Client Protocol: JSON-RPC, a message a line, on standard input and output."""

    def __init__(self, way: str) -> None:
        self.forgets = way == "forgets"
        self.messages: list[dict[str, Any]] = []
        self.answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.asked: Any = None

    def listen(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            method, id = message.get("method"), message.get("id")
            if method is None:
                self.answers.put(message)
            elif method == "initialize":
                self.tell(id, {"protocolVersion": 1, "agentCapabilities": {"loadSession": not self.forgets}})
            elif method == "session/new":
                self.tell(id, {"sessionId": "the-session"})
            elif method == "session/load":
                self.messages = json.loads(MEMORY.read_text())
                self.tell(id, {})
            elif method == "session/prompt":
                self.asked = id
                threading.Thread(target=self.carry_out, args=(message["params"]["prompt"][0]["text"],)).start()
            elif method == "session/cancel":
                self.tell(self.asked, {"stopReason": "cancelled"})

    def carry_out(self, text: str) -> None:
        permission = {
            "sessionId": "the-session",
            "toolCall": {"toolCallId": "call-1", "kind": "execute"},
            "options": [{"optionId": "proceed_once", "name": "Yes", "kind": "allow_once"}],
        }
        say(jsonrpc="2.0", id=77, method="session/request_permission", params=permission)
        assert self.answers.get()["result"]["outcome"]["optionId"] == "proceed_once"
        told = {"type": "text", "text": text}
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages[-1]["content"].append(told)
        else:
            self.messages.append({"role": "user", "content": [told]})
        said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": work(self.messages, "")}}
        say(jsonrpc="2.0", method="session/update", params={"sessionId": "the-session", "update": said})
        MEMORY.write_text(json.dumps(self.messages))
        self.tell(self.asked, {"stopReason": "end_turn"})

    @staticmethod
    def tell(id: Any, result: dict[str, Any]) -> None:
        say(jsonrpc="2.0", id=id, result=result)


def main(way: str, session: str = "", resumed: str = "") -> None:
    if way == "--version":
        print("1.0")
        return
    if way in ("speaks", "forgets"):
        Speaker(way).listen()
        return
    while way == "babbles":
        print("this is no protocol", flush=True)
    prompt = sys.stdin.read()
    if way == "nothing":
        return
    while way == "reconnects":
        say(type="error", message="reconnecting")
        time.sleep(0.2)
    messages = json.loads(MEMORY.read_text()) if resumed else []
    told = {"type": "text", "text": prompt}
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"].append(told)  # ended before the model had answered: the roles alternate
    else:
        messages.append({"role": "user", "content": [told]})
    try:
        text = work(messages, way)
    except urllib.error.URLError as error:
        say(type="result", subtype="error", is_error=True, result=str(error))
        sys.exit(1)
    MEMORY.write_text(json.dumps(messages))
    if way == "silent":
        return
    say(type="result", subtype="success", is_error=way == "fails well", result=text, session_id=session)
    while way == "stays":
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])

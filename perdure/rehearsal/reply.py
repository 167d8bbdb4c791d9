"""The message that a line of a screenplay becomes, its tool calls translated to the tools that the agent offers, its
thinking blocks signed; the same conversation always gives the same bytes. Used by the server and the wires of this
package, which choose the line and send the message."""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Sequence

from perdure.models.base import Json
from perdure.rehearsal.record import InputUsage, tokens_of
from perdure.rehearsal.screenplay import Fault, Line
from perdure.rehearsal.wire import (
    ApiRefusal,
    Block,
    Request,
    Summary,
    Text,
    Thinking,
    ThinkingConfig,
    ToolUse,
    answer_problem,
    canonical_json,
    fill_empties,
    invalid_request,
)
from perdure.text import nearest

NamedCall = tuple[str, Json]

ANSWER_TOOL = "StructuredOutput"
"""Claude Code's tool for an answer that has to follow a schema: it does not ask the API for a structured answer."""

_OWN_TOOLS = frozenset({"bash", "read", "write", "edit", "glob", "grep"})

_DIRECTORY = re.compile(r"Primary working directory: (\S+)|<cwd>(\S+)</cwd>")
_YIELD_MS = 30_000
"""Codex returns a command that runs longer to the model as a session; a screenplay has no line for that."""


def translate_call(tool: str, arguments: Json, request: Request) -> NamedCall | None:
    """Return the call of an offered tool that does what `tool` with these arguments does: (its name, its arguments).

    A tool that is offered itself is returned as it is, unless another agent's tool has that name. Returns None when no
    offered tool can do it.
    """
    offered = {offer.name: offer.input_schema.model_dump().get("properties") or {} for offer in request.tools}
    # Fields that only other agents' tools have: such a tool may have a name of ours and take other arguments.
    has_foreign_tools = "filePath" in offered.get("read", ()) or any(
        "description" in offered.get(name, ()) for name in _SHELLS
    )
    if tool in offered and not (has_foreign_tools and tool in _OWN_TOOLS):
        return tool, arguments
    for required, translate in _TRANSLATIONS:
        if required <= offered.keys():
            return translate(tool, arguments, offered, _working_directory(request))
    return None


def answer_schema(request: Request) -> Json | None:
    """Return the schema of the offered tool that takes a structured answer (ANSWER_TOOL).

    None without such a tool, or where the request asks for a structured answer in the API's own way.
    """
    schemas = [tool.input_schema.model_dump() for tool in request.tools if tool.name == ANSWER_TOOL]
    return schemas[0] if schemas and request.json_schema is None else None


def _working_directory(request: Request) -> str:
    """Return the working directory that the agent named last, in system prompt or first message; empty without."""
    first = [block.text for block in request.messages[0].content if isinstance(block, Text)]
    matches = [
        match for text in [*(block.text for block in request.system), *first] for match in _DIRECTORY.findall(text)
    ]
    return next(filter(None, matches[-1])) if matches else ""


def _shell_command(tool: str, arguments: Json) -> str | None:
    """Return a shell command that does what a `bash`, `read`, `glob` or `grep` call does; None for other tools."""
    match tool:
        case "bash":
            return str(arguments.get("command", ""))
        case "read":
            first, limit = arguments.get("offset", 1), arguments.get("limit")
            last = "$" if limit is None else first + limit - 1
            return f"sed -n {shlex.quote(f'{first},{last}p')} {shlex.quote(arguments['path'])}"
        case "glob":
            pattern = posixpath.normpath(posixpath.join(arguments.get("path", "."), arguments["pattern"]))
            return f"git ls-files -co --exclude-standard -- {shlex.quote(f':(glob){pattern}')}"
        case "grep":
            flags = "-rnEi" if arguments.get("ignore_case") else "-rnE"
            only = f" --include={shlex.quote(arguments['glob'])}" if arguments.get("glob") else ""
            operands = f"{shlex.quote(arguments['pattern'])} {shlex.quote(arguments.get('path', '.'))}"
            return f"grep {flags} --exclude-dir=.git{only} -e {operands}"
        case _:
            return None


def _write_command(arguments: Json) -> str:
    """Return a shell command that writes a file as a `write` call does, and creates its directory."""
    folder = shlex.quote(posixpath.dirname(arguments["path"]) or ".")
    text, file = shlex.quote(arguments["content"]), shlex.quote(arguments["path"])
    return f"mkdir -p {folder} && printf %s {text} > {file}"


# ------------------------------------------------------------------------------------------------------ Claude Code

_CLAUDE = frozenset({"Bash", "Read"})


def _to_claude(tool: str, arguments: Json, offered: Collection[str], directory: str) -> NamedCall | None:
    """Convert a call to Claude Code's Read, Write, Edit or Bash; None for a tool that none of them replaces.

    Paths become absolute below `directory`. Without Write the file is written by Bash: the agent's smallest set has no
    tool for it.
    """
    path = posixpath.join(directory, str(arguments.get("path", "")))
    match tool:
        case "read" if "path" in arguments:
            window: Json = {key: arguments[key] for key in ("offset", "limit") if key in arguments}
            return "Read", {"file_path": path, **window}
        case "write" if "Write" in offered:
            return "Write", {"file_path": path, "content": arguments["content"]}
        case "write":  # Claude Code's smallest set of tools has no Write.
            return "Bash", {"command": _write_command(arguments)}
        case "edit" if "Edit" in offered:
            options = {"replace_all": True} if arguments.get("replace_all") else {}
            return "Edit", {
                "file_path": path,
                "old_string": arguments["old"],
                "new_string": arguments["new"],
                **options,
            }
        case _:
            command = _shell_command(tool, arguments)
            return None if command is None else ("Bash", {"command": command})


# ------------------------------------------------------------------------------------------------------------ Codex

_CODEX = frozenset({"exec_command"})
_CODE_MODE = frozenset({"exec"})


def _to_codex(tool: str, arguments: Json, offered: Collection[str], directory: str) -> NamedCall | None:
    """Convert a call to Codex's tools: edits to `apply_patch`, all else to `exec_command`; None where neither fits.

    Without `apply_patch` the patch is passed to the command of that name: a model that Codex does not know has no such
    tool.
    """
    patch, command = _codex_patch(tool, arguments), _shell_command(tool, arguments)
    if patch is not None and "apply_patch" in offered:
        return "apply_patch", {"input": patch}
    if patch is not None:  # A model that Codex does not know has no such tool, but the command exists.
        command = f"apply_patch <<'PATCH'\n{patch}PATCH"
    return None if command is None else ("exec_command", {"cmd": command, "yield_time_ms": _YIELD_MS})


def _to_codex_script(tool: str, arguments: Json, offered: Collection[str], directory: str) -> NamedCall | None:
    """Convert a call to Codex's `exec`, the one tool of the newest models: a script that calls the other tools.

    Returns None for a tool that Codex cannot replace.
    """
    call = _to_codex(tool, arguments, {"apply_patch"}, directory)
    if call is None:
        return None
    name, tool_input = call
    argument = json.dumps(tool_input["input"] if name == "apply_patch" else tool_input)
    return "exec", {"input": f"text(await tools.{name}({argument}));"}


def _codex_patch(tool: str, arguments: Json) -> str | None:
    """Return a `write` or `edit` call as a patch in Codex's own format; None for other tools.

    The `old` and `new` of an edit have to be whole lines.
    """
    match tool:
        case "write":
            lines = ["*** Add File: " + arguments["path"], *_mark_lines("+", arguments["content"])]
        case "edit":
            lines = [
                "*** Update File: " + arguments["path"],
                "@@",
                *_mark_lines("-", arguments["old"]),
                *_mark_lines("+", arguments["new"]),
            ]
        case _:
            return None
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"]) + "\n"


def _mark_lines(mark: str, text: str) -> list[str]:
    """Return the lines of a text, each with `mark` before it."""
    return [mark + line for line in text.splitlines()]


# ------------------------------------------------------------------------------------ opencode, Gemini, Qwen, Copilot

_SHELLS = ("bash", "run_shell_command")
_EDIT = "import pathlib as p, sys; a = sys.argv; f = p.Path(a[1]); f.write_text(f.read_text().replace(*a[2:4]))"


def _to_shell_tool(tool: str, arguments: Json, offered: Collection[str], directory: str) -> NamedCall | None:
    """Convert a call to a shell command of opencode, Gemini, Qwen or Copilot; None where no command does it.

    Their other tools differ from each other, and with the model, so the shell does everything.
    """
    match tool:
        case "write":
            command: str | None = _write_command(arguments)
        case "edit":
            command = shlex.join(["python3", "-c", _EDIT, arguments["path"], arguments["old"], arguments["new"]])
        case _:
            command = _shell_command(tool, arguments)
    name = next(shell for shell in _SHELLS if shell in offered)
    return None if command is None else (name, {"command": command, "description": tool})


_TRANSLATIONS = (
    (_CLAUDE, _to_claude),
    (_CODE_MODE, _to_codex_script),
    (_CODEX, _to_codex),
    *((frozenset({shell}), _to_shell_tool) for shell in _SHELLS),
)


Where = Callable[[], str]
"""Callback that names a line for its author; called only when something is wrong with the line."""


def compose_reply(
    line: Line, request: Request, digest: str, where: Where, fault: Fault | None
) -> tuple[list[Block], str]:
    """Return (the blocks of the reply that a line makes, its stop reason).

    `digest` stands for the conversation so far and makes the ids. Of the faults, `refusal` gives no blocks and
    `max_tokens` cuts the last one; others are left to the caller. Raises ApiRefusal when the line does not fit the
    request: a tool that is not offered, an answer that breaks the schema.
    """
    if fault is Fault.REFUSAL:
        return [], "refusal"
    blocks: list[Block] = []
    if line.think is not None and (block := thinking_block(request.model, line.think, request.thinking)):
        blocks.append(block)
    calls = [(scripted.tool, scripted.input, scripted.unknown) for scripted in line.use]
    text = line.say
    if line.answer is not None and (schema := answer_schema(request)) is not None:
        calls.append((ANSWER_TOOL, json.loads(_answer_text(line.answer, schema, where)), False))
    elif line.answer is not None:
        text = _answer_text(line.answer, request.json_schema, where)
    if text is not None:
        blocks.append(Text(type="text", text=text))
    offered = [tool.name for tool in request.tools]
    for number, (tool, arguments, unknown) in enumerate(calls):
        call = (tool, arguments) if unknown else translate_call(tool, arguments, request)
        if call is None:
            raise _not_offered_error(tool, offered, where)
        blocks.append(ToolUse(type="tool_use", id=_use_id(digest, number), name=call[0], input=call[1]))
    if fault is Fault.MAX_TOKENS:
        return _cut_last_block(blocks), "max_tokens"
    return blocks, "tool_use" if calls else "end_turn"


def summary_blocks(request: Request) -> list[Summary]:
    """Return the reply to a request for a summary of its conversation: no line of a screenplay answers it."""
    reply_count = sum(message.role == "assistant" for message in request.messages)
    return [Summary(type="compaction", content=f"The screenplay sums {reply_count} replies up.")]


def _use_id(digest: str, number: int) -> str:
    """Return the id of a reply's tool call, made of the conversation's digest and the call's number."""
    return f"toolu_{hashlib.sha256(f'{digest} {number}'.encode()).hexdigest()[:24]}"


def build_message(
    request: Request, digest: str, blocks: Sequence[Block | Summary], stop_reason: str, input_usage: InputUsage
) -> Json:
    """Build the whole message, as JSON replies carry it and streams put it together."""
    stop_details = {
        "type": "refusal",
        "category": "general_harms",
        "explanation": "The screenplay has the model refuse.",
    }
    return {
        "id": f"msg_{digest[:24]}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [json.loads(canonical_json(block)) for block in blocks],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "stop_details": stop_details if stop_reason == "refusal" else None,
        "usage": {
            "input_tokens": input_usage.fresh,
            "cache_creation_input_tokens": input_usage.written,
            "cache_read_input_tokens": input_usage.cache_read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": input_usage.written_5m,
                "ephemeral_1h_input_tokens": input_usage.written_1h,
            },
            "output_tokens": sum(map(tokens_of, blocks)) or 1,
            "service_tier": "standard",
        },
    }


def _cut_last_block(blocks: list[Block]) -> list[Block]:
    """Return the blocks with the last text cut in half, as max_tokens cuts it.

    A tool input in last place is cut in the stream, where half of it can be sent. Without blocks, return one with a
    text that breaks off.
    """
    if not blocks:
        return [Text(type="text", text="This reply is cut o")]
    *complete, last = blocks
    if isinstance(last, Text):
        last = Text(type="text", text=last.text.strip()[: max(1, len(last.text.strip()) // 2)])
    return [*complete, last]


def _answer_text(answer: Json, schema: Json | None, where: Where) -> str:
    """Return an answer as JSON text, with the empty values that the schema requires and the screenplay left out.

    Raises ApiRefusal when it breaks the schema.
    """
    if schema is not None:
        answer = fill_empties(answer, schema)
    if schema is not None and (problem := answer_problem(answer, schema)):
        raise invalid_request(
            f"screenplay: {where()}: {problem}; the API only sends answers that follow the schema "
            "(write the JSON as say to have the model break it)"
        )
    return json.dumps(answer, ensure_ascii=False)


def _not_offered_error(tool: str, offered: list[str], where: Where) -> ApiRefusal:
    """Return the refusal to raise for a line that uses a tool which the request does not offer."""
    return invalid_request(
        f"screenplay: {where()}: uses tool '{tool}', the request offers {', '.join(offered) or 'none'}"
        f"{nearest(tool, offered)}; write unknown = true in the call to have the model make it up"
    )


def thinking_block(model: str, text: str, config: ThinkingConfig | None) -> Thinking | None:
    """Return the thinking block that a model sends, signed; None when the request turns thinking off.

    Without a setting there is one. Its text is left out unless the request's `display` asks for it.
    """
    if config and config.type == "disabled":
        return None
    shown = text if config and config.display in ("summarized", "updates") else ""
    text_digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return Thinking(type="thinking", thinking=shown, signature=_sign_thinking(model, text_digest, shown))


def is_genuine_thinking(model: str, block: Thinking) -> bool:
    """Return whether this model wrote exactly this block; the signature binds the hash of text that was not shown."""
    try:
        text_digest = base64.b64decode(block.signature, validate=True).decode("ascii").partition(".")[0]
    except ValueError:
        return False
    return block.signature == _sign_thinking(model, text_digest, block.thinking)


def _sign_thinking(model: str, text_digest: str, shown: str) -> str:
    """Return a thinking block's signature, which binds the model, the hash of its whole text, and the shown text."""
    seal = hashlib.sha256(f"{model}\n{text_digest}\n{shown}".encode()).hexdigest()
    return base64.b64encode(f"{text_digest}.{seal}".encode()).decode()

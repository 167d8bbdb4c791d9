"""The shape and checks of a preset: a CLI agent described as data, as `perdure/agents/*.toml` and a host's own files
hold it; and how its command line is made."""

from __future__ import annotations

import difflib
import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from perdure.models.config.repository import Settings
from perdure.text import nearest, shorten

AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
"""Names of presets: the file's name without `.toml`."""

PLACEHOLDERS = ("model", "effort", "max_tokens", "session", "schema", "schema_file", "prompt", "proxy", "key", "home")
"""Names in braces that are replaced in a preset's texts; any other braces are the text's own."""

WIRES = ("anthropic", "openai-responses", "openai-chat", "gemini")
"""The model APIs that the proxy speaks."""

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_VERSION = re.compile(r"\d+(?:\.\d+)*")


class Ability(StrEnum):
    """An ability of an agent that a step may need."""

    RESUME = "resume"
    FORK = "fork"
    ANSWERS = "answers"
    READS_ONLY = "reads_only"
    WORDS = "words"


class Abilities(Settings):
    """The abilities of an agent.

    resume         goes on with a session whose files were put back
    fork           goes on with a copy of a session
    answers        "enforced": it makes the model's answer follow a JSON schema; "asked": only the prompt asks for it,
                   and the engine checks; "none": it cannot carry out steps that end with an answer
    reads_only     carries out steps in a worktree that it cannot change
    user_messages  receives messages from people by going on with a session; `words` in the file
    """

    resume: bool = False
    fork: bool = False
    answers: Literal["enforced", "asked", "none"] = "none"
    reads_only: bool = False
    user_messages: Annotated[bool, Field(alias="words")] = False

    def has(self, ability: Ability) -> bool:
        """Return True when the agent has an ability; answers count when they are enforced or asked for."""
        return (
            self.answers != "none"
            if ability is Ability.ANSWERS
            else bool(self.user_messages if ability is Ability.WORDS else getattr(self, ability))
        )

    def describe(self) -> str:
        """Return all abilities in one line for people: `resume, fork, answers enforced, reads only, words`; `nothing
        beyond one prompt` when there are none."""
        parts = []
        for ability in Ability:
            if self.has(ability):
                parts.append(f"answers {self.answers}" if ability is Ability.ANSWERS else ability.replace("_", " "))
        return ", ".join(parts) or "nothing beyond one prompt"


class EventSelector(Settings):
    """The place of a value in an agent's output: in the last event that matches `where`, at `path`.

    where  dotted path → value: the event must have all of them; empty: every event matches
    path   dotted path of the value, `take` in the file; empty: the event itself

    Where an answer is looked for, a text that is JSON counts as what it holds.
    """

    where: dict[str, str | bool | int] = {}
    path: Annotated[str, Field(alias="take")] = ""


class ResultSelectors(Settings):
    """The places in an agent's output that tell how a prompt ended; `output = "acp"` needs none of them.

    ended    the event after which nothing more comes: an agent that keeps running is ended then
    well     the event by which it ended well; without such an event it failed, whatever the exit code says
    text     its last text
    answer   the structured answer, an object or its JSON as a text
    session  the session's id, where the agent chooses it
    error    why it did not end well; the first one that is present counts
    denied   calls of tools that were refused
    """

    ended: tuple[EventSelector, ...] = ()
    well: EventSelector | None = None
    text: EventSelector | None = None
    answer: EventSelector | None = None
    session: EventSelector | None = None
    error: tuple[EventSelector, ...] = ()
    denied: EventSelector | None = None


def _check_version(version: str) -> str:
    """Return the version itself; empty is allowed. Raises ValueError for a text that is not numbers with dots."""
    if version and not _VERSION.fullmatch(version):
        raise ValueError(f"{shorten(version, 40)!r} is no version: write numbers with dots, such as 2.1")
    return version


VersionNumber = Annotated[str, AfterValidator(_check_version)]


class VersionCheck(Settings):
    """The way to ask an agent for its version.

    args   arguments that make it print its version: the first number with a dot in the output
    least  the first version that the preset was tried with; empty: any
    """

    args: tuple[str, ...] = ("--version",)
    least: VersionNumber = ""


class Preset(Settings):
    """A CLI agent. It runs in the sandbox: no network, no key, a home of its own, the worktree as working directory.

    title     shown to people
    command   the program, and arguments that always come first
    args      arguments of a new session; resume: of one that goes on
    answers   further arguments where the step ends with a structured answer
    reads     further arguments where the step may only read
    effort    further arguments where the step's settings say how hard the model thinks
    prompt    whether the prompt is given on standard input, or as the last argument; ACP has its own way
    env       variables of the process; it has PATH, HOME and LANG besides
    files     settings written below its home, path → text
    sessions  globs below its home: its memory, part of every checkpoint
    output    one JSON document, one a line, or the Agent Client Protocol
    wire      the model API it speaks; the proxy serves only that
    model     used where the step's settings name none
    also      other models that it uses beside its work, for titles and the like: names, or patterns such as `*-flash`;
              the proxy answers no others
    version   what `perdure doctor` asks for; node: the least Node it needs, empty: none; install: how to get it

    Placeholders in arguments, env and files: {model} {effort} {max_tokens} {session} {schema} (the JSON text)
    {schema_file} {prompt} {proxy} (http://127.0.0.1:PORT) {key} (a placeholder, no key) {home}.
    """

    title: str = Field(min_length=1)
    command: tuple[str, ...] = Field(min_length=1)
    args: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    effort: tuple[str, ...] = ()
    prompt: Literal["stdin", "argument"] = "stdin"
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    sessions: tuple[str, ...] = ()
    output: Literal["json", "json-lines", "acp"] = "json-lines"
    wire: Literal["anthropic", "openai-responses", "openai-chat", "gemini"]
    model: str = ""
    also: tuple[str, ...] = ()
    result: ResultSelectors = ResultSelectors()
    version: VersionCheck = VersionCheck()
    node: VersionNumber = ""
    install: str = ""
    network: bool = False
    abilities: Abilities = Abilities()

    @field_validator("wire", mode="before")
    @classmethod
    def _check_wire(cls, wire: object) -> object:
        """Return the wire itself. Raises ValueError, with the nearest name, for an API that the proxy does not
        speak."""
        if isinstance(wire, str) and wire not in WIRES:
            raise ValueError(f"no proxy speaks {shorten(wire, 40)!r}{nearest(wire, WIRES)}; known: {', '.join(WIRES)}")
        return wire

    @field_validator("network")
    @classmethod
    def _refuse_network(cls, network: bool) -> bool:
        """Return False. Raises ValueError for True: no agent gets a network."""
        if network:
            raise ValueError("an agent has no network: it reaches its model through the proxy and nothing else")
        return network

    @field_validator("command")
    @classmethod
    def _check_command(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command itself. Raises ValueError when its first word is blank or has a NUL in it, and so names no
        program."""
        if not command[0].strip() or "\0" in command[0]:
            raise ValueError("its first word names no program")
        return command

    @field_validator("files", "sessions")
    @classmethod
    def _check_paths_in_home(cls, paths: dict[str, str] | tuple[str, ...]) -> dict[str, str] | tuple[str, ...]:
        """Return the paths themselves. Raises ValueError for one that is empty, absolute, goes upwards or is not
        printable."""
        for path in paths:
            if path.startswith("/") or ".." in path.split("/") or not path.isprintable() or not path:
                raise ValueError(f"{shorten(path, 80)!r} is no path below the agent's home")
        return paths

    @model_validator(mode="after")
    def _check_arguments(self) -> Preset:
        """Return the preset itself. Raises ValueError for an unknown placeholder, with the nearest one, and for a
        preset that says it can resume without arguments and session files for that."""
        for name in ("args", "resume", "answers", "reads", "effort"):
            for word in getattr(self, name):
                for placeholder in _PLACEHOLDER.findall(word):
                    if placeholder not in PLACEHOLDERS:
                        near = difflib.get_close_matches(placeholder, PLACEHOLDERS, n=1)
                        hint = f", did you mean {{{near[0]}}}?" if near else ""
                        raise ValueError(f"{name}: {{{placeholder}}} means nothing{hint}")
        if self.abilities.resume and self.output != "acp" and not (self.resume and self.sessions):
            raise ValueError("abilities.resume needs the words of `resume` and the files of `sessions`")
        return self

    def supports(self, ability: Ability) -> bool:
        """Return True when a step can rely on an ability.

        An agent that speaks the Agent Client Protocol always counts as able to resume: one that is not is told what was
        done before.
        """
        return self.abilities.has(ability) or (ability is Ability.RESUME and self.output == "acp")

    def command_line(
        self, values: dict[str, str], *, resumed: bool = False, answers: bool = False, reads: bool = False
    ) -> list[str]:
        """Return the command line of one process of the agent; the prompt is in it only when an argument has its
        placeholder.

        values   what replaces each placeholder, by name as in PLACEHOLDERS; without `effort` its arguments are left out
        resumed  the process goes on with a session; answers: it ends with a structured answer; reads: it may only read
        """
        arguments = [*self.command, *(self.resume if resumed else self.args)]
        arguments += [*(self.answers if answers else ()), *(self.reads if reads else ())]
        arguments += self.effort if values.get("effort") else ()
        return [fill_placeholders(text, values) for text in arguments]


def fill_placeholders(text: str, values: dict[str, str]) -> str:
    """Return a text with its placeholders replaced once: braces in a value stay, and so do unknown placeholders."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def find_version(printed: str) -> str:
    """Return the first number with a dot, `2.1.330` of `2.1.330 (Claude Code)`, else the first number; empty: none."""
    match = re.search(r"\d+(?:\.\d+)+", printed) or re.search(r"\d+", printed)
    return match[0] if match else ""


def is_older(version: str, least: str) -> bool:
    """Return True when a version is below the least one; parts are compared as numbers, and `22` is `22.0`. Raises
    IndexError when either has no number."""
    mine, theirs = ([int(part) for part in _VERSION.findall(text)[0].split(".")] for text in (version, least))
    longest = max(len(mine), len(theirs))
    return mine + [0] * (longest - len(mine)) < theirs + [0] * (longest - len(theirs))

"""A preset: a CLI agent described as data, as `perdure/agents/*.toml` and a host's own files hold it."""

from __future__ import annotations

import difflib
import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from perdure.models.config import Settings
from perdure.text import nearest

AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
"""Names of presets: the file's without `.toml`."""

PLACES = ("model", "effort", "max_tokens", "session", "schema", "schema_file", "prompt", "proxy", "key", "home")
"""Words in braces that a preset's texts may have; any other braces are the text's own."""

WIRES = ("anthropic", "openai-responses", "openai-chat", "gemini")
"""The model APIs that the proxy speaks."""

_PLACE = re.compile(r"\{([a-z_]+)\}")
_VERSION = re.compile(r"\d+(?:\.\d+)*")


class Ability(StrEnum):
    """Something a step may need of an agent."""

    RESUME = "resume"
    FORK = "fork"
    ANSWERS = "answers"
    READS_ONLY = "reads_only"
    WORDS = "words"


class Abilities(Settings):
    """Of an agent.

    resume      goes on with a session whose files were put back
    fork        goes on with a copy of a session
    answers     "enforced": it makes the model's answer follow a JSON schema; "asked": only the prompt asks for it, and
                the engine checks; "none": it cannot carry out steps that end with an answer
    reads_only  carries out steps in a worktree that it cannot change
    words       takes words from people by going on with a session
    """

    resume: bool = False
    fork: bool = False
    answers: Literal["enforced", "asked", "none"] = "none"
    reads_only: bool = False
    words: bool = False

    def has(self, ability: Ability) -> bool:
        return self.answers != "none" if ability is Ability.ANSWERS else bool(getattr(self, ability))

    def described(self) -> str:
        """`resume, fork, answers enforced, reads only, words`."""
        found = []
        for ability in Ability:
            if self.has(ability):
                found.append(f"answers {self.answers}" if ability is Ability.ANSWERS else ability.replace("_", " "))
        return ", ".join(found) or "nothing beyond one prompt"


class Find(Settings):
    """A value in the output: of the last event in which every dotted path of `where` has its value, at `take`.

    `take` empty: the event itself. Without `where` every event is meant. A JSON text counts as what it holds where an
    answer is looked for.
    """

    where: dict[str, str | bool | int] = {}
    take: str = ""


class Result(Settings):
    """Places in the output of an agent that tell how a prompt ended; `output = "acp"` needs none.

    ended    the event after which nothing more comes: an agent that lives on is ended
    well     it ended well; no such event: it did not, whatever the exit code says
    text     the last words
    answer   the structured answer, an object or its JSON as a text
    session  the session's id, where the agent chooses it
    error    why it did not end well; the first one found counts
    denied   calls of tools that were refused
    """

    ended: tuple[Find, ...] = ()
    well: Find | None = None
    text: Find | None = None
    answer: Find | None = None
    session: Find | None = None
    error: tuple[Find, ...] = ()
    denied: Find | None = None


def _version(given: str) -> str:
    if given and not _VERSION.fullmatch(given):
        raise ValueError(f"{given[:40]!r} is no version: write numbers with dots, such as 2.1")
    return given


Numbers = Annotated[str, AfterValidator(_version)]


class Version(Settings):
    """`args`: words that make it say its version; the first number with a dot in what it prints is that. `least`: the
    first version the preset was run with; empty: any."""

    args: tuple[str, ...] = ("--version",)
    least: Numbers = ""


class Preset(Settings):
    """A CLI agent. It runs in the sandbox: no network, no key, a home of its own, the worktree as working directory.

    title     shown to people
    command   the program and words that always come first
    args      words of a new session; resume: of one that goes on
    answers   more words where the step ends with a structured answer
    reads     more words where the step may only read
    effort    more words where the step's settings say how hard the model thinks
    prompt    the prompt is given on standard input, or as last word; ACP has its own way
    env       variables of the process; it has PATH, HOME and LANG besides
    files     settings written below its home, path → text
    sessions  globs below its home: its memory, part of every checkpoint
    output    one JSON document, one a line, or the Agent Client Protocol
    wire      the model API it speaks; the proxy serves only that
    model     used where the step's settings name none
    also      other models that it asks beside its work, for titles and the like: names, or patterns such as `*-flash`;
              the proxy answers no others
    version   what `perdure doctor` asks for; node: the least Node it needs, empty: none; install: how to get it

    Places in words, env and files: {model} {effort} {max_tokens} {session} {schema} (the JSON text) {schema_file}
    {prompt} {proxy} (http://127.0.0.1:PORT) {key} (a placeholder, no key) {home}.
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
    result: Result = Result()
    version: Version = Version()
    node: Numbers = ""
    install: str = ""
    network: bool = False
    abilities: Abilities = Abilities()

    @field_validator("wire", mode="before")
    @classmethod
    def _known_wire(cls, given: object) -> object:
        if isinstance(given, str) and given not in WIRES:
            raise ValueError(f"no proxy speaks {given[:40]!r}{nearest(given, WIRES)}; known: {', '.join(WIRES)}")
        return given

    @field_validator("network")
    @classmethod
    def _inside(cls, given: bool) -> bool:
        if given:
            raise ValueError("an agent has no network: it reaches its model through the proxy and nothing else")
        return given

    @field_validator("command")
    @classmethod
    def _a_program(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if not given[0].strip() or "\0" in given[0]:
            raise ValueError("its first word names no program")
        return given

    @field_validator("files", "sessions")
    @classmethod
    def _below(cls, given: dict[str, str] | tuple[str, ...]) -> dict[str, str] | tuple[str, ...]:
        for path in given:
            if path.startswith("/") or ".." in path.split("/") or not path.isprintable() or not path:
                raise ValueError(f"{path[:80]!r} is no path below the agent's home")
        return given

    @model_validator(mode="after")
    def _places(self) -> Preset:
        for name in ("args", "resume", "answers", "reads", "effort"):
            for word in getattr(self, name):
                for place in _PLACE.findall(word):
                    if place not in PLACES:
                        near = difflib.get_close_matches(place, PLACES, n=1)
                        hint = f", did you mean {{{near[0]}}}?" if near else ""
                        raise ValueError(f"{name}: {{{place}}} means nothing{hint}")
        if self.abilities.resume and self.output != "acp" and not (self.resume and self.sessions):
            raise ValueError("abilities.resume needs the words of `resume` and the files of `sessions`")
        return self

    def can(self, ability: Ability) -> bool:
        """True where a step can rely on it. One that is spoken to by the protocol and cannot resume is told what was
        done."""
        return self.abilities.has(ability) or (ability is Ability.RESUME and self.output == "acp")

    def words(
        self, places: dict[str, str], *, resumed: bool = False, answers: bool = False, reads: bool = False
    ) -> list[str]:
        """The command line of one process, without the prompt where no place is for it.

        places   by name, as PLACES has them; without an `effort` nothing is said about it
        resumed  it goes on with the session; answers: it ends with a structured answer; reads: it may only read
        """
        texts = [*self.command, *(self.resume if resumed else self.args)]
        texts += [*(self.answers if answers else ()), *(self.reads if reads else ())]
        texts += self.effort if places.get("effort") else ()
        return [fill(text, places) for text in texts]


def fill(text: str, places: dict[str, str]) -> str:
    """A text with its places filled, once: braces in a value stay."""
    return _PLACE.sub(lambda found: places.get(found[1], found[0]), text)


def version_in(printed: str) -> str:
    """The first number with a dot, `2.1.330` of `2.1.330 (Claude Code)`; else the first number; empty: none."""
    found = re.search(r"\d+(?:\.\d+)+", printed) or re.search(r"\d+", printed)
    return found[0] if found else ""


def older(version: str, least: str) -> bool:
    """True where a version is below the least one; numbers are compared, `22` is `22.0`."""
    mine, theirs = ([int(part) for part in _VERSION.findall(text)[0].split(".")] for text in (version, least))
    longest = max(len(mine), len(theirs))
    return mine + [0] * (longest - len(mine)) < theirs + [0] * (longest - len(theirs))

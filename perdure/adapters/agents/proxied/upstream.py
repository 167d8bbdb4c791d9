"""The model's API behind the proxy: its address and its key, which stay in this process."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from perdure.adapters.agents.builtin import model as builtin
from perdure.adapters.agents.builtin.errors import Endpoint
from perdure.adapters.agents.builtin.model import MODEL_REPLY_S, MODEL_SILENCE_S
from perdure.models.errors import BadInput

ANTHROPIC, RESPONSES, CHAT, GEMINI = "anthropic", "openai-responses", "openai-chat", "gemini"


@dataclass(frozen=True)
class _Variables:
    """Names of environment variables: `keys` with the header each is sent in, `address`, and the address without it."""

    keys: Mapping[str, str]
    address: str
    default: str


_BEARER = "authorization"
_ANTHROPIC = _Variables(
    dict(zip(builtin.KEY_VARIABLES, ("x-api-key", _BEARER), strict=True)), builtin.BASE_URL_VARIABLE, builtin.API_URL
)
_OPENAI = _Variables({"OPENAI_API_KEY": _BEARER}, "OPENAI_BASE_URL", "https://api.openai.com/v1")
_GEMINI = _Variables(
    {"GEMINI_API_KEY": "x-goog-api-key"}, "GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"
)
VARIABLES = {ANTHROPIC: _ANTHROPIC, RESPONSES: _OPENAI, CHAT: _OPENAI, GEMINI: _GEMINI}
"""By wire; for people, too: the variables that a worker needs for an agent of that wire."""


@dataclass(frozen=True)
class Upstream:
    """The address to which requests of one wire go, and the key they carry.

    variable   the environment variable the key came from, for messages
    header     the one that carries the key
    headers    more of them, as secret as the key
    silence_s  seconds for which the API may send nothing; `within_s` those that one reply may take
    """

    wire: str
    base_url: str
    key: str = field(repr=False)
    variable: str
    header: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    silence_s: float = MODEL_SILENCE_S
    within_s: float = MODEL_REPLY_S

    def __post_init__(self) -> None:
        url = urlsplit(self.base_url)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
            raise BadInput(
                "the model API's address is not a URL that can be called",
                where=VARIABLES[self.wire].address,
                fix=f"unset it, or set it to something like {VARIABLES[self.wire].default}",
            )
        if not 0 < self.silence_s < math.inf:
            raise BadInput(f"{self.silence_s!r} is not a number of seconds", where=builtin.SILENCE_VARIABLE)

    @classmethod
    def anthropic(cls, base_url: str, key: str) -> Upstream:
        """One that speaks Anthropic Messages, for tests and tools."""
        return cls(
            ANTHROPIC,
            base_url,
            key,
            variable=builtin.KEY_VARIABLES[0],
            header=_ANTHROPIC.keys[builtin.KEY_VARIABLES[0]],
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values to keep out of everything that is stored or shown."""
        password = urlsplit(self.base_url).password
        return (self.key, *self.headers.values(), *([password] if password else []))

    @property
    def account(self) -> str:
        """Tells whose limits count: the key and where it is used, as the built-in agent's model does. A secret."""
        return f"{self.base_url}\n{self.key}"

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.base_url, self.variable, self.secrets)

    def credentials(self) -> dict[str, str]:
        """The headers that carry the key."""
        value = f"Bearer {self.key}" if self.header == _BEARER else self.key
        return {**self.headers, self.header: value}


def upstreams(environ: MutableMapping[str, str]) -> dict[str, Upstream]:
    """The upstreams these variables name, by wire; a wire without a key has none.

    Keys are taken out of `environ`: what the worker starts must not inherit them. BadInput as in Upstream.
    """
    names = {name for variables in VARIABLES.values() for name in variables.keys}
    taken = {name: environ.pop(name, "").strip() for name in names}
    extra = builtin.parse_headers(environ.pop(builtin.HEADERS_VARIABLE, ""))
    silence_s = builtin.parse_seconds(environ.get(builtin.SILENCE_VARIABLE))
    found = {}
    for wire, variables in VARIABLES.items():
        variable = next((name for name in variables.keys if taken[name]), None)
        if variable is not None:
            found[wire] = Upstream(
                wire,
                environ.get(variables.address, "").strip() or variables.default,
                taken[variable],
                variable=variable,
                header=variables.keys[variable],
                headers=extra if wire == ANTHROPIC else {},
                silence_s=silence_s,
            )
    return found

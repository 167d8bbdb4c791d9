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
class _WireVariables:
    """The environment variables of an upstream.

    key_headers       the variable of each key that may be set → the header it is sent in
    address_variable  the variable of its address
    default_address   used where that is not set
    """

    key_headers: Mapping[str, str]
    address_variable: str
    default_address: str


_BEARER = "authorization"
_ANTHROPIC = _WireVariables(
    dict(zip(builtin.KEY_VARIABLES, ("x-api-key", _BEARER), strict=True)), builtin.BASE_URL_VARIABLE, builtin.API_URL
)
_OPENAI = _WireVariables({"OPENAI_API_KEY": _BEARER}, "OPENAI_BASE_URL", "https://api.openai.com/v1")
_GEMINI = _WireVariables(
    {"GEMINI_API_KEY": "x-goog-api-key"}, "GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"
)
WIRE_VARIABLES = {ANTHROPIC: _ANTHROPIC, RESPONSES: _OPENAI, CHAT: _OPENAI, GEMINI: _GEMINI}
"""By wire: the variables that a worker needs for an agent of that wire; people are shown them, too."""


@dataclass(frozen=True)
class Upstream:
    """The address to which requests of one wire go, and the key they carry.

    variable   the environment variable the key came from, for messages
    header     the one that carries the key
    headers    further headers, as secret as the key
    silence_s  the longest time, in seconds, for which the API may send nothing
    within_s   the longest time, in seconds, that one reply may take
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
        """Raise BadInput for an address that is no http(s) URL with a host, or has a query, and for a silence that is
        not positive."""
        url = urlsplit(self.base_url)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
            raise BadInput(
                "the model API's address is not a URL that can be called",
                where=WIRE_VARIABLES[self.wire].address_variable,
                fix=f"unset it, or set it to something like {WIRE_VARIABLES[self.wire].default_address}",
            )
        if not 0 < self.silence_s < math.inf:
            raise BadInput(f"{self.silence_s!r} is not a number of seconds", where=builtin.SILENCE_VARIABLE)

    @classmethod
    def anthropic(cls, base_url: str, key: str) -> Upstream:
        """Return an upstream that speaks Anthropic Messages, for tests and tools."""
        return cls(
            ANTHROPIC,
            base_url,
            key,
            variable=builtin.KEY_VARIABLES[0],
            header=_ANTHROPIC.key_headers[builtin.KEY_VARIABLES[0]],
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values to keep out of everything that is stored or shown: key, further headers, the address's
        password."""
        password = urlsplit(self.base_url).password
        return (self.key, *self.headers.values(), *([password] if password else []))

    @property
    def account(self) -> str:
        """Return whose limits count, as a text: the address and the key, as the built-in agent's model does. It is a
        secret."""
        return f"{self.base_url}\n{self.key}"

    @property
    def endpoint(self) -> Endpoint:
        """Return the address with the variable of its key and its secrets, as errors of requests are told with it."""
        return Endpoint(self.base_url, self.variable, self.secrets)

    def credentials(self) -> dict[str, str]:
        """Return the headers that carry the key, and the further ones."""
        value = f"Bearer {self.key}" if self.header == _BEARER else self.key
        return {**self.headers, self.header: value}


def upstreams_from_environment(environ: MutableMapping[str, str]) -> dict[str, Upstream]:
    """Return the upstreams that these variables name, by wire; a wire without a key has none.

    Removes keys and further headers from `environ`: what the worker starts must not inherit them. Raises BadInput for
    an address or a silence that cannot work.
    """
    names = {name for variables in WIRE_VARIABLES.values() for name in variables.key_headers}
    keys = {name: environ.pop(name, "").strip() for name in names}
    extra_headers = builtin.parse_headers(environ.pop(builtin.HEADERS_VARIABLE, ""))
    silence_s = builtin.parse_seconds(environ.get(builtin.SILENCE_VARIABLE))
    upstreams_by_wire = {}
    for wire, variables in WIRE_VARIABLES.items():
        variable = next((name for name in variables.key_headers if keys[name]), None)
        if variable is not None:
            upstreams_by_wire[wire] = Upstream(
                wire,
                environ.get(variables.address_variable, "").strip() or variables.default_address,
                keys[variable],
                variable=variable,
                header=variables.key_headers[variable],
                headers=extra_headers if wire == ANTHROPIC else {},
                silence_s=silence_s,
            )
    return upstreams_by_wire

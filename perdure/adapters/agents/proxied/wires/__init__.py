"""The wires by name, as presets name them."""

from __future__ import annotations

from perdure.adapters.agents.proxied.base import Wire
from perdure.adapters.agents.proxied.wires.anthropic import Anthropic
from perdure.adapters.agents.proxied.wires.chat import Chat
from perdure.adapters.agents.proxied.wires.gemini import Gemini
from perdure.adapters.agents.proxied.wires.responses import Responses

WIRES: dict[str, Wire] = {wire.name: wire for wire in (Anthropic(), Responses(), Chat(), Gemini())}

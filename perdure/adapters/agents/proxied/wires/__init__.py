"""The wires by name, as presets name them."""

from __future__ import annotations

from perdure.adapters.agents.proxied.base import ProxiedWire
from perdure.adapters.agents.proxied.wires.anthropic import ProxiedAnthropicWire
from perdure.adapters.agents.proxied.wires.gemini import ProxiedGeminiWire
from perdure.adapters.agents.proxied.wires.openai import ProxiedChatWire, ProxiedResponsesWire

WIRES: dict[str, ProxiedWire] = {
    wire.name: wire for wire in (ProxiedAnthropicWire(), ProxiedResponsesWire(), ProxiedChatWire(), ProxiedGeminiWire())
}

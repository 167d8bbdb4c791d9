"""The wires by the names that presets give them: the model APIs that agents may speak, as the proxy parses them."""

from __future__ import annotations

from perdure.adapters.agents.proxied.base import ProxiedWire
from perdure.adapters.agents.proxied.wires.anthropic import ProxiedAnthropicWire
from perdure.adapters.agents.proxied.wires.gemini import ProxiedGeminiWire
from perdure.adapters.agents.proxied.wires.openai import ProxiedChatWire, ProxiedResponsesWire

WIRES: dict[str, ProxiedWire] = {
    wire.name: wire for wire in (ProxiedAnthropicWire(), ProxiedResponsesWire(), ProxiedChatWire(), ProxiedGeminiWire())
}

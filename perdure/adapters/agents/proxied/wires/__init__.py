"""The wires by name, as presets name them."""

from __future__ import annotations

from perdure.adapters.agents.proxied.base import Wire
from perdure.adapters.agents.proxied.wires.anthropic import Anthropic

WIRES: dict[str, Wire] = {wire.name: wire for wire in (Anthropic(),)}

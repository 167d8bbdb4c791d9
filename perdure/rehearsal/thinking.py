"""Thinking blocks, signed so that a client that changes one is found out."""

from __future__ import annotations

import base64
import hashlib

from perdure.rehearsal.wire import Thinking, ThinkingConfig


def thought(model: str, text: str, config: ThinkingConfig | None) -> Thinking | None:
    """The block a model sends: none when thinking is off, without its text unless `display` is `summarized`."""
    if config and config.type == "disabled":
        return None
    shown = text if config and config.display == "summarized" else ""
    whole = hashlib.sha256(text.encode()).hexdigest()[:32]
    return Thinking(type="thinking", thinking=shown, signature=_sign(model, whole, shown))


def is_genuine(model: str, block: Thinking) -> bool:
    """True where this model wrote exactly this block; the text that was not shown is bound by its hash."""
    try:
        whole = base64.b64decode(block.signature, validate=True).decode("ascii").partition(".")[0]
    except ValueError:
        return False
    return block.signature == _sign(model, whole, block.thinking)


def _sign(model: str, whole: str, shown: str) -> str:
    seal = hashlib.sha256(f"{model}\n{whole}\n{shown}".encode()).hexdigest()
    return base64.b64encode(f"{whole}.{seal}".encode()).decode()

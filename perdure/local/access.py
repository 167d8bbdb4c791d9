"""The model and forge a worker was started for: told apart without a key or token being written anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.models.errors import BadInput
from perdure.models.forges import FORGES
from perdure.models.ids import digest

NAMES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
)
"""The variables that say which models are asked, and with which keys: the built-in agent's and those of others."""

KEYS = tuple(name for name in NAMES if not name.endswith("_BASE_URL"))
"""Without one of these no model is asked, whatever its address."""


def fingerprint(env: Mapping[str, str], salt: str, names: Sequence[str] = NAMES) -> str:
    """Differs when one of these variables does; `salt` is new for every worker."""
    return digest(salt, *(env.get(name, "").strip() for name in names))[:16]


def forge_names() -> tuple[str, ...]:
    """The variables that say who we are to a forge."""
    return tuple(name for forge in FORGES for name in (*forge.variables, *forge.secrets))


def notify_names() -> tuple[str, ...]:
    """The variables that say who is told of deliveries."""
    from perdure.adapters.notify.addresses import SECRET_VARIABLES

    return SECRET_VARIABLES


def tells_the_same(known: str, env: Mapping[str, str], salt: str) -> bool:
    """True where the running worker tells whom `env` names, as far as variables say; `known` empty: nobody can tell."""
    return not known or known == fingerprint(env, salt, notify_names())


def check_same_forge(known: str, env: Mapping[str, str], salt: str) -> None:
    """Raises BadInput when the worker that runs would be somebody else to the forge than `env` says."""
    if known and known != fingerprint(env, salt, forge_names()):
        names = " or ".join(forge.name for forge in FORGES)
        raise BadInput(
            f"the worker that runs was started with another token for {names} than yours, or without one",
            where="; ".join(f"{', '.join(forge.tokens)} or another of {forge.guide}" for forge in FORGES),
            fix="perdure down, then the same again: what is being delivered goes on with yours",
        )


def check_same(known: str, env: Mapping[str, str], salt: str) -> None:
    """Raises BadInput when the worker that runs would ask another model, or with another key, than `env` says."""
    if known and known != fingerprint(env, salt):
        raise BadInput(
            "the worker that runs was started with another key or model address than yours",
            where=" or ".join(NAMES),
            fix="perdure down, then the same again: what is being delivered goes on with yours",
        )

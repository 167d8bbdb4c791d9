"""Fingerprints of the credentials that a worker was started with.

They show that another model key, forge token or webhook address is wanted now, without any secret being stored. The
supervisor records them; commands that submit, and `perdure doctor`, compare them with their own environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.models.errors import BadInput
from perdure.models.forges import FORGES
from perdure.models.ids import digest

MODEL_VARIABLES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
)
"""Environment variables that choose the models and their keys: the built-in agent's and those of others."""

MODEL_KEYS = tuple(name for name in MODEL_VARIABLES if not name.endswith("_BASE_URL"))
"""Those of MODEL_VARIABLES that hold a key. Unless one of them is set no model is asked, whatever its address."""


def fingerprint(env: Mapping[str, str], salt: str, names: Sequence[str] = MODEL_VARIABLES) -> str:
    """Return a hash of 16 hex digits over the stripped values of these environment variables; absent: empty.

    `salt` is new for every worker, so that equal credentials of two workers give different fingerprints.
    """
    return digest(salt, *(env.get(name, "").strip() for name in names))[:16]


def forge_variables() -> tuple[str, ...]:
    """Return the environment variables that hold our identity at the forges: settings and secrets of every forge."""
    return tuple(name for forge in FORGES for name in (*forge.variables, *forge.secret_variables))


def notify_variables() -> tuple[str, ...]:
    """Return the environment variables that say who is notified of deliveries; they are secret."""
    from perdure.adapters.notify.addresses import SECRET_VARIABLES

    return SECRET_VARIABLES


def notifies_same_people(recorded: str, env: Mapping[str, str], salt: str) -> bool:
    """Return whether the running worker notifies the people whom `env` names, as far as variables can tell.

    `recorded` is the fingerprint that the worker left in its record, made with `salt`; empty: unknown, and True.
    """
    return not recorded or recorded == fingerprint(env, salt, notify_variables())


def check_same_forge_access(recorded: str, env: Mapping[str, str], salt: str) -> None:
    """Raise BadInput when the running worker was started with other forge credentials than `env` has.

    `recorded` is the fingerprint that the worker left in its record, made with `salt`; empty: not checked.
    """
    if recorded and recorded != fingerprint(env, salt, forge_variables()):
        names = " or ".join(forge.name for forge in FORGES)
        raise BadInput(
            f"the worker that runs was started with another token for {names} than yours, or without one",
            where="; ".join(f"{', '.join(forge.token_variables)} or another of {forge.guide}" for forge in FORGES),
            fix="perdure down, then the same again: what is being delivered goes on with yours",
        )


def check_same_model_access(recorded: str, env: Mapping[str, str], salt: str) -> None:
    """Raise BadInput when the running worker was started with another model key or model address than `env` has.

    `recorded` is the fingerprint that the worker left in its record, made with `salt`; empty: not checked.
    """
    if recorded and recorded != fingerprint(env, salt):
        raise BadInput(
            "the worker that runs was started with another key or model address than yours",
            where=" or ".join(MODEL_VARIABLES),
            fix="perdure down, then the same again: what is being delivered goes on with yours",
        )

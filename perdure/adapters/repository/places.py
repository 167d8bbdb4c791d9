"""The paths of this host that a request may name: all when it comes from here, else those the host's owner allows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from perdure.adapters.git.credentials import Keyring
from perdure.adapters.git.source import ELSEWHERE, Target, check_checkout, locate, place_on_host
from perdure.adapters.system.home import Home
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.proof import proves
from perdure.models.request import DeliveryRequest

_ALLOW = "local_repositories in the user file, or PERDURE_LOCAL_REPOSITORIES, allows directories (docs/submitting.md)"


def comes_from_here(home: Home, delivery: str, request: DeliveryRequest) -> bool:
    """True when whoever wrote the request knows this home's key. Everybody who reaches Temporal can write one."""
    return proves(request.proof, home.key(), delivery, request.model_dump(mode="json", exclude_defaults=True))


def find_target(request: DeliveryRequest, ours: bool, allowed: Sequence[str], keys: Keyring) -> Target:
    """The repository of a request. InvalidRequest for one on this host that is neither ours to name nor allowed.

    BadInput and ForgeUnavailable as `locate` raises them.
    `ours`: the request comes from here. `allowed`: directories in which repositories may be named by anybody.
    """
    if ours:
        return locate(request.repository, Path.cwd(), keys)
    _check_allowed(place_on_host(request.repository), allowed)  # before anything there is looked at
    target = locate(request.repository, ELSEWHERE, keys)
    _check_allowed(place_on_host(target.url), allowed)  # a checkout there may have its origin anywhere
    return target


def find_source(request: DeliveryRequest, ours: bool, target: Target, needed: bool) -> str:
    """The submitter's checkout, empty without one. `needed`: something shall be copied from it.

    InvalidRequest when something is, and the request does not come from here, or names no checkout of the repository.
    """
    if request.source is None or not needed:
        return ""
    if not ours:
        raise InvalidRequest(
            "source: [setup] copy takes files of this host only for requests that come from this PERDURE_HOME",
            fix="submit with perdure deliver on the worker's host, or leave out source",
        )
    try:
        return str(check_checkout(request.source, target.url))
    except BadInput as error:
        raise InvalidRequest(f"source: {error.what}", where=error.where, fix=error.fix) from None


def _check_allowed(path: Path | None, allowed: Sequence[str]) -> None:
    if path is None:
        return
    real = os.path.realpath(path)
    inside = (Path(real).is_relative_to(os.path.realpath(os.path.expanduser(place))) for place in allowed)
    if not path.is_absolute() or "%" in str(path) or not any(inside):
        raise InvalidRequest(
            "repository: a path of the worker's host counts only in requests that come from its PERDURE_HOME",
            where=str(path)[:200],
            fix=f"submit with perdure deliver there, or name a URL; {_ALLOW}",
        )

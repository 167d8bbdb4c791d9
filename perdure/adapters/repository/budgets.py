"""The budgets that deliveries of many hosts share, in a file of their own: `PERDURE_TREASURY`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.adapters.repository.keys import load, parse
from perdure.adapters.system.bounded import read_text
from perdure.models.base import Written
from perdure.models.config import HostConfig
from perdure.models.contract import Contract
from perdure.models.errors import BadInput
from perdure.models.limits import CONFIG_BYTES
from perdure.models.request import DeliveryRequest
from perdure.models.treasury import Budgets, matching

VARIABLE = "PERDURE_TREASURY"


class BudgetFile(Written):
    """Only `[[treasury]]`, so that the same file can lie on every host."""

    treasury: Budgets = ()


def named_file(env: Mapping[str, str]) -> dict[str, Any]:
    """The tables of the file that the variable names, for the settings of this host; they replace the user file's.

    Raises BadInput with file, line and key.
    """
    if not (name := env.get(VARIABLE, "").strip()):
        return {}
    try:
        text = read_text(Path(os.path.expanduser(name)), CONFIG_BYTES)
    except (OSError, ValueError) as error:
        raise BadInput("the file of budgets cannot be read", where=f"{VARIABLE}={name}", fix=str(error)) from None
    parse(text, name, BudgetFile)
    return load(text, name)


def shared_by(host: HostConfig, contract: Contract, request: DeliveryRequest) -> dict[str, float]:
    """The budgets that a delivery shares with others, by its repository and by labels of the request and its issue."""
    labels = (*request.labels, *(contract.issue.labels if contract.issue else ()))
    return matching(host.treasury, contract.repository, labels)

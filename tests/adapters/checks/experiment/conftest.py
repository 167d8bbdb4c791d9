"""Changes that are tried."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiment_fixtures import Trials

from perdure.adapters.sandbox.base import Sandbox


@pytest.fixture
def tried(sandbox: Sandbox, tmp_path: Path) -> Trials:
    return Trials(sandbox, tmp_path)

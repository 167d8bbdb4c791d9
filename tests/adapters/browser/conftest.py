"""The bench of this directory's tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from app_fixtures import Bench

from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.sandbox.grades import probe
from perdure.adapters.system.home import Home
from tests import needs


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    needs.require("chromium")
    if (error := probe().error) is not None:
        pytest.skip(f"BUBBLEWRAP DOES NOT WORK HERE: {error}")
    home = Home(tmp_path / "home")
    (tmp_path / "tree").mkdir()
    binds = compute_binds(tmp_path / "tree", os.environ["PATH"], Path.home(), perdure_home=home.root)
    return Bench(BubblewrapSandbox(home, binds), tmp_path)

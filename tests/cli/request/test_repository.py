"""A checkout may hold anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.cli.request.repository import NAME, in_working_tree


@pytest.mark.timeout(10)
def test_a_pipe_in_the_place_of_the_settings_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / NAME).symlink_to("pipe")
    assert in_working_tree(tmp_path) is None

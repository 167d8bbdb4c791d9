"""A checkout may hold anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.cli.request.repository import CONFIG_FILE, read_working_tree_config


@pytest.mark.timeout(10)
def test_a_pipe_in_the_place_of_the_settings_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / CONFIG_FILE).symlink_to("pipe")
    assert read_working_tree_config(tmp_path) is None

"""What every test may rely on: nothing of the host's environment decides about it."""

from __future__ import annotations

import os

import pytest

KEPT = ("GIT_SSL_CAINFO", "PERDURE_SEEDS")
for name in [n for n in os.environ if n.startswith(("PERDURE_", "TEMPORAL_", "ANTHROPIC_", "GIT_", "GH_", "GITHUB_"))]:
    if name not in KEPT:
        del os.environ[name]

pytest.register_assert_rewrite("tests.lab")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests begin first, so that none of them is waited for alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)

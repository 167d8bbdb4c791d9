"""The number of examples a property is asked of: all on a build server, a third at a desk, where they recur daily."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """`count` where CI is set, as hypothesis counts them."""
    return count if os.environ.get("CI") else max(10, count // 3)

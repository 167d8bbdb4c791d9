"""unittest: it has no report of its own, its exit code decides."""

from __future__ import annotations

from perdure.adapters.project.runners.base import Runner


class Unittest(Runner):
    name = "unittest"
    reports = False

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "unittest"

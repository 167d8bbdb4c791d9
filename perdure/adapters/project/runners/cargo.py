"""cargo test: its exit code decides."""

from __future__ import annotations

from perdure.adapters.project.runners.base import Runner


class Cargo(Runner):
    name = "cargo"
    reports = False

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "cargo" and rest[:1] in (["test"], ["t"])

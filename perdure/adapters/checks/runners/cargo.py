"""cargo test: its exit code decides."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.adapters.checks.runners.base import Canaries, Runner
from perdure.adapters.checks.runners.rust import INSIDE, planted


class Cargo(Runner):
    name = "cargo"
    yields = True

    tests = r"(?:.*/)?tests/(?:.*/)?[^/]*\.rs"
    roots = frozenset({"tests"})
    settings = r"nextest\.toml"
    shared = frozenset({"Cargo.toml", "Cargo.lock", "Makefile"})
    inside = INSIDE

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "cargo" and rest[:1] in (["test"], ["t"])

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        return planted(files, token)

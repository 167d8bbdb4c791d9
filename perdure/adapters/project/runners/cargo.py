"""cargo test: its exit code decides."""

from __future__ import annotations

from perdure.adapters.project.runners.base import Runner


class Cargo(Runner):
    name = "cargo"
    reports = False

    tests = r"(?:.*/)?tests/(?:.*/)?[^/]*\.rs"
    roots = frozenset({"tests"})
    settings = r"nextest\.toml"
    shared = frozenset({"Cargo.toml", "Cargo.lock", "Makefile"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "cargo" and rest[:1] in (["test"], ["t"])

"""Changes in real repositories, and secrets that are made anew in every run: none of them stands in a file of ours."""

from __future__ import annotations

import os
import random
import string
from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.checks.findings.engine_findings import EngineFindings, inspect_commit
from perdure.adapters.git.repository import Repository
from perdure.models.checks.report import Finding, FindingRule
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.turn import Contract
from tests.repositories import git

Content = str | bytes | None

_chance = random.Random()


class Work:
    """A repository with one commit; `base` is that commit."""

    def __init__(self, path: Path, files: Mapping[str, Content] | None = None) -> None:
        path.mkdir(parents=True)
        self.path = path
        self.git("init", "-q", "-b", "main")
        self.base = self.commit(files or {"README.md": "hello\n", "app.py": "x = 1\n"})

    def git(self, *args: str) -> str:
        return git(self.path, *args)

    def commit(
        self, files: Mapping[str, Content], message: str = "change", links: Mapping[str, str] | None = None
    ) -> str:
        """Write (None: remove) files, make symbolic links, commit all, return the commit."""
        for name, content in files.items():
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                file.unlink()
            else:
                file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape"))
        for name, target in (links or {}).items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(target, self.path / name)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    @property
    def repository(self) -> Repository:
        return Repository(self.path / ".git")

    def contract(self, **more: object) -> Contract:
        protect = more.pop("protect", None)
        config = {"version": 1} | ({"protect": {"paths": protect}} if protect is not None else {})
        facts = {
            "delivery": "d",
            "repository": "r",
            "request": "q",
            "base": "main",
            "base_sha": self.base,
            "branch": "b",
        }
        return Contract.model_validate({**facts, "config": RepositoryConfig.model_validate(config), **more})

    def look(self, begun_at: str = "", **more: object) -> EngineFindings:
        """`begun_at`: the commit of an existing branch that the delivery began on."""
        return inspect_commit(self.repository, self.contract(head=begun_at, **more), self.git("rev-parse", "HEAD"))

    def found(
        self, files: Mapping[str, Content], links: Mapping[str, str] | None = None, **more: object
    ) -> list[Finding]:
        """What is found in one commit with these files on top."""
        self.commit(files, links=links)
        return list(self.look(**more).findings.findings)


def of(rule: FindingRule, found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.rule is rule]


def random_text(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Many different characters are in it."""
    while True:
        text = "".join(_chance.choices(alphabet, k=length))
        if len(set(text)) >= min(12, length // 2):
            return text


def github_token() -> str:
    return "ghp_" + random_text(36)


def private_key(lines: int = 5, kind: str = "RSA ") -> str:
    body = "\n".join(random_text(64) for _ in range(lines))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----\n"

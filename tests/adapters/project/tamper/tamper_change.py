"""A change between two commits of a real repository, and what the gate says about it."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perdure.adapters.git.repository import Repository
from perdure.adapters.project.tamper import Files, Tampered, tampering
from perdure.models.config import TestCommand
from perdure.models.report import TestReport

PYTEST = "python -m pytest -q"
Tree = Mapping[str, str | bytes | None]
"""Path → text; None takes a file away. A text that starts with `-> ` is a link."""


class Change:
    """Commits `before`, then `before` with `after` put over it."""

    def __init__(self, root: Path, before: Tree, after: Tree, common: Tree | None = None) -> None:
        """`common`: what the head forked from, when the base has gone on since."""
        self.root = root
        if not (root / "HEAD").exists():
            subprocess.run(["git", "init", "-q", "--bare", str(root)], check=True, timeout=30)
        trees = [before, {**(before if common is None else common), **after}]
        made = self._commit(trees if common is None else [common, *trees], common is not None)
        self.base, self.head = made[-2:]

    def _commit(self, trees: list[Tree], forked: bool) -> list[str]:
        """One git process for all commits, each on the one before; forked: each on the first."""
        stream = b""
        for number, files in enumerate(trees, start=1):
            head = f"commit refs/heads/made\nmark :{number}\ncommitter t <t@localhost> 0 +0000\ndata 1\nx\n"
            parent = 1 if forked else number - 1
            stream += head.encode() + (f"from :{parent}\n".encode() if number > 1 else b"") + b"deleteall\n"
            for path, text in files.items():
                if text is None:
                    continue
                data = textwrap.dedent(text).encode() if isinstance(text, str) else text
                link = data.startswith(b"-> ")
                data = data.removeprefix(b"-> ").rstrip(b"\n") if link else data
                mode = "120000" if link else "100755" if data.startswith(b"#!") else "100644"
                stream += f"M {mode} inline {path}\ndata {len(data)}\n".encode() + data + b"\n"
        stream += b"".join(f"get-mark :{number}\n".encode() for number in range(1, len(trees) + 1))
        asked = ["git", "fast-import", "--quiet", "--force", "--cat-blob-fd=1"]
        done = subprocess.run(asked, cwd=self.root, input=stream, capture_output=True, check=True, timeout=30)
        return done.stdout.decode().split()

    def judge(self, *commands: str, base: TestReport | None = None, now: TestReport | None = None) -> Tampered:
        before, after = Files.pair(Repository(self.root), self.base, self.head)
        tests = [TestCommand(name=f"t{n}", command=command) for n, command in enumerate(commands)]
        return tampering(before, after, tests, base, now)

    def checkout(self, commit: str, into: Path) -> Path:
        into.mkdir()
        archive = subprocess.run(["git", "archive", commit], cwd=self.root, capture_output=True, check=True, timeout=30)
        subprocess.run(["tar", "x"], cwd=into, input=archive.stdout, check=True, timeout=30)
        return into


Judge = Callable[..., Any]


def told(found: Tampered) -> list[str]:
    """Each hit as `rule: title`."""
    return [f"{hit.rule.value}: {hit.title}" for hit in found.hits]

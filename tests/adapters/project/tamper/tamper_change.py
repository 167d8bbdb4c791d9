"""A change between two commits of a real repository, and what the gate says about it."""

from __future__ import annotations

import hashlib
import subprocess
import textwrap
import zlib
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
        (root / "objects").mkdir(parents=True, exist_ok=True)
        (root / "refs").mkdir(exist_ok=True)
        (root / "HEAD").write_text("ref: refs/heads/made\n")
        first = () if common is None else (self._commit(common),)
        self.base = self._commit(before, *first)
        self.head = self._commit({**(before if common is None else common), **after}, *(first or (self.base,)))

    def _commit(self, files: Tree, *parents: str) -> str:
        """Written as git stores it: a git process for each of hundreds of changes costs more than their judgement."""
        directories: dict[str, dict[str, str]] = {"": {}}
        for path, text in files.items():
            if text is None:
                continue
            data = textwrap.dedent(text).encode() if isinstance(text, str) else text
            link = data.startswith(b"-> ")
            data = data.removeprefix(b"-> ").rstrip(b"\n") if link else data
            mode = "120000" if link else "100755" if data.startswith(b"#!") else "100644"
            above, _, name = path.rpartition("/")
            directories.setdefault(above, {})[name] = f"{mode} {self._object('blob', data)}"
            while above:
                above = above.rpartition("/")[0]
                directories.setdefault(above, {})
        for path in sorted(directories, key=lambda path: path.count("/") + bool(path), reverse=True):
            entries = directories[path]
            lines = [(name, *entry.split(" ")) for name, entry in entries.items()]
            lines.sort(key=lambda line: f"{line[0]}/".encode() if line[1] == "40000" else line[0].encode())
            tree = self._object("tree", b"".join(f"{m} {n}\0".encode() + bytes.fromhex(sha) for n, m, sha in lines))
            above, _, name = path.rpartition("/")
            if path:
                directories[above][name] = f"40000 {tree}"
        who = "t <t@localhost> 0 +0000"
        head = [f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}"]
        return self._object("commit", ("\n".join(head) + "\n\nx\n").encode())

    def _object(self, kind: str, data: bytes) -> str:
        whole = f"{kind} {len(data)}\0".encode() + data
        name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        file = self.root / "objects" / name[:2] / name[2:]
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(zlib.compress(whole, 1))
        return name

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

"""A change between two commits of a real repository, and what is read from it."""

from __future__ import annotations

import hashlib
import textwrap
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.adapters.checks.experiment.side_rules import command_files
from perdure.adapters.checks.tamper import DifferingFiles, find_hints, find_missing_tests
from perdure.adapters.checks.tamper.hints import ReviewHints
from perdure.adapters.checks.tamper.missing_tests import MissingTests
from perdure.adapters.checks.trees import CommitTree
from perdure.adapters.git.repository import Repository
from perdure.models.checks.report import TestReport
from perdure.models.config.repository import TestCommand

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

    def missing(self, *commands: str, base: TestReport | None = None, covered: Collection[str] = ()) -> MissingTests:
        return find_missing_tests(*self.files(), _commands(commands), base, covered)

    def hints(self, *commands: str) -> ReviewHints:
        tree = CommitTree.from_commit(Repository(self.root), self.base)
        return find_hints(*self.files(), command_files(tree, _commands(commands)))

    def files(self) -> tuple[DifferingFiles, DifferingFiles]:
        return DifferingFiles.between_commits(Repository(self.root), self.base, self.head)


def _commands(words: Sequence[str]) -> list[TestCommand]:
    return [TestCommand(name=f"t{number}", command=command) for number, command in enumerate(words or ("make test",))]


Judge = Callable[..., Any]

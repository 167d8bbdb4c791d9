"""A repository's pull request template is found where GitHub finds it, and nowhere else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from perdure.adapters.forges.template import read_template
from perdure.adapters.git.repository import Repository


def repository(root: Path, *files: tuple[str, bytes]) -> tuple[Repository, str]:
    """A bare repository with these files, written as blobs: also names that this file system could not hold apart."""
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(root)}
    environment |= {f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def git(*args: str, data: bytes = b"") -> str:
        done = subprocess.run(
            ["git", "--git-dir", str(root / "r.git"), *args],
            input=data, capture_output=True, env=environment, check=True, timeout=30,
        )  # fmt: skip
        return done.stdout.decode().strip()

    git("init", "-q", "--bare", str(root / "r.git"))
    listing = b""
    for path, data in files:
        mode, sha = ("120000" if data == b"link" else "100644"), git("hash-object", "-w", "--stdin", data=data)
        listing += f"{mode} {sha}\t{path}\n".encode()
    git("update-index", "--index-info", data=listing)
    return Repository(root / "r.git"), git("commit-tree", git("write-tree"), "-m", "x")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([(".github/PULL_REQUEST_TEMPLATE.md", b"a"), ("pull_request_template.md", b"b")], "a"),
        ([("docs/Pull_Request_Template.txt", b"c"), ("README.md", b"no")], "c"),
        ([("PULL_REQUEST_TEMPLATE.md", b"b"), ("docs/pull_request_template.md", b"c")], "b"),
        ([(".github/PULL_REQUEST_TEMPLATE/default.md", b"only one")], "only one"),
        ([("PULL_REQUEST_TEMPLATE/a.md", b"a"), ("PULL_REQUEST_TEMPLATE/b.md", b"b")], None),
        ([(".github/pull_request_template.md", b"link"), ("docs/pull_request_template.md", b"c")], "c"),
        ([(".github/pull_request_template.md", b" \n"), ("pull_request_template.md", b"b")], "b"),
        ([("pull_request_template.md", b"x" * 32_769)], None),
        ([("pull_request_template.md", b"x" * 32_768)], "x" * 32_768),
        ([("pull_request_template.md", b"caf\xe9")], "caf\ufffd"),
        ([("src/pull_request_template.md", b"x"), ("my_pull_request_template.md", b"x")], None),
    ],
)
def test_the_template_is_found_where_github_finds_it(
    tmp_path: Path, files: list[tuple[str, bytes]], expected: str | None
) -> None:
    stored, commit = repository(tmp_path, *files)
    assert read_template(stored, commit) == expected

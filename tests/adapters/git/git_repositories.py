"""Repositories for tests, made with the plain `git` command, as a person would use it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PERSON = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


def git(where: Path, *args: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", "-C", str(where), *args],
        env=PERSON,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        timeout=60,
    )
    assert not check or done.returncode == 0, f"git {args}: {done.stderr}"
    return done.stdout.strip()


def make_origin(at: Path, files: dict[str, bytes] | None = None) -> Path:
    """A bare repository whose `main` has one commit."""
    seed = at.with_name(f"{at.name}-seed")
    seed.mkdir(parents=True)
    git(seed, "init", "-q", "-b", "main")
    for name, data in (files or {"README.md": b"hello\n", "src/app.py": b"x = 1\n"}).items():
        (seed / name).parent.mkdir(parents=True, exist_ok=True)
        (seed / name).write_bytes(data)
    git(seed, "add", "-A")
    git(seed, "commit", "-q", "-m", "first")
    git(at.parent, "clone", "-q", "--bare", str(seed), str(at))
    return at


def changed(repository: Path, a: str, b: str) -> list[str]:
    """Paths that differ between two commits or trees."""
    return git(repository, "diff", "--name-only", "--no-renames", a, b).splitlines()

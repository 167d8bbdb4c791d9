"""Repositories for tests: made with the plain `git` command, as a person would, and read with it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

CALC = {
    "calc.py": '''\
        """A small calculator."""


        def add(a, b):
            """The sum of two numbers."""
            return a + b
    ''',
    "tests/test_calc.py": """\
        import unittest

        from calc import add


        class AddTest(unittest.TestCase):
            def test_adds(self):
                self.assertEqual(add(2, 3), 5)


        if __name__ == "__main__":
            unittest.main()
    """,
    "tests/__init__.py": "",
    "perdure.toml": """\
        version = 1
        [setup]
        commands = []
        [[test]]
        name = "unit"
        command = "python3 -m unittest -q"
    """,
}
"""A target that needs nothing installed: a module, a test, its configuration."""


PERSON = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_NAME": "Ada" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "ada@example.org" for who in ("AUTHOR", "COMMITTER")},
}
"""The environment of somebody whose git has nobody's configuration."""


def git(where: Path, *args: str, check: bool = True, stdin: str | None = None, **env: str) -> str:
    """Run git as a person would, and return its output without white space around it; a failure fails the test."""
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", *args],
        cwd=where,
        env={**PERSON, **env},
        input=stdin,
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
    git(seed, "init", "-q")
    for name, data in (files or {"README.md": b"hello\n", "src/app.py": b"x = 1\n"}).items():
        (seed / name).parent.mkdir(parents=True, exist_ok=True)
        (seed / name).write_bytes(data)
    git(seed, "add", "-A")
    git(seed, "commit", "-q", "-m", "first")
    git(at.parent, "clone", "-q", "--bare", str(seed), str(at))
    return at


def make_target(path: Path, files: dict[str, str] | None = None) -> Path:
    """A bare origin with one commit on main, holding `files` (default: CALC), and a checkout of it in `PATH-work`."""
    made = _made(tuple((files or CALC).items()))
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(made, path.with_name(path.name + "-work"), ignore=shutil.ignore_patterns("origin.git"))
    shutil.copytree(made / "origin.git", path)
    return path


@cache
def _made(files: tuple[tuple[str, str], ...]) -> Path:
    """Made once a process: five gits cost more than most of what is done with their repository."""
    work = Path(tempfile.mkdtemp(prefix="perdure-target-"))
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    git(work, "init", "-q", "--template=")
    for name, text in files:
        file = work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    git(work, "add", "-A")
    git(work, "commit", "-qm", "start")
    git(work, "clone", "-q", "--bare", "--template=", ".", "origin.git")
    (work / "origin.git" / "hooks").mkdir()  # where tests put theirs
    git(work / "origin.git", "remote", "remove", "origin")  # a path with an origin means that origin, not itself
    work.chmod(0o755)
    return work


def pulls(origin: Path) -> list[dict[str, Any]]:
    """Every pull request of a local forge, as its records tell."""
    listed = git(origin, "for-each-ref", "--format=%(refname)", "refs/pull/").splitlines()
    records = [ref for ref in listed if ref.endswith("/record")]
    return [json.loads(git(origin, "show", f"{ref}:pull.json")) for ref in records]


def heads(origin: Path) -> dict[str, str]:
    lines = git(origin, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads/").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def changed(repository: Path, a: str, b: str) -> list[str]:
    """Paths that differ between two commits or trees."""
    return git(repository, "diff", "--name-only", "--no-renames", a, b).splitlines()


def unpack(repository: Path) -> None:
    """Make loose objects of all packs, as they were before they were packed, so that a test can damage one."""
    for pack in (repository / "objects" / "pack").glob("*.pack"):
        apart = pack.rename(repository / pack.name)
        for file in pack.parent.glob(f"{pack.stem}.*"):
            file.unlink()
        with apart.open("rb") as file:
            subprocess.run(["git", "unpack-objects", "-q"], cwd=repository, stdin=file, check=True, timeout=60)
        apart.unlink()

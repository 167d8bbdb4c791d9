"""A repository with git-lfs, on a host that names that filter: files are edited, tested and shipped as they are."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.engine import CALC, HAPPY, TESTED, Engine, check_shipped, finished, git, make_target
from tests.needs import require

OLD, NEW = b"old!" * 5000, b"new!" * 5000

TEST = """\
import unittest


class DataTest(unittest.TestCase):
    def test_is_whole(self):
        with open("data.bin", "rb") as data:
            self.assertEqual(len(data.read()), 20000)
"""

DYING = """\
#!/bin/sh
# git-lfs whose caller's caller, the worker, dies once behind an upload
{real} "$@" || exit
[ "$1" != pre-push ] || ! mkdir {root}/died 2>/dev/null || kill -9 $(awk '/^PPid/ {{ print $2 }}' /proc/$PPID/status)
"""


def make_pointer(data: bytes) -> str:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{hashlib.sha256(data).hexdigest()}\nsize 20000\n"


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_a_large_file_is_shipped_as_a_pointer_with_its_bytes_whenever_the_worker_dies(
    tmp_path: Path, ports: int
) -> None:
    require("git-lfs")
    attributes = {
        ".gitattributes": "*.bin filter=lfs -text\n",
        "data.bin": make_pointer(OLD),
        "tests/test_data.py": TEST,
    }
    origin = make_target(tmp_path / "calc.git", {**CALC, **attributes})
    oid = hashlib.sha256(OLD).hexdigest()
    stored = origin / "lfs" / "objects" / oid[:2] / oid[2:4]
    stored.mkdir(parents=True)
    (stored / oid).write_bytes(OLD)
    config, programs = tmp_path / "config" / "perdure", tmp_path / "programs"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[git]\nfilters = ["lfs"]\n')
    programs.mkdir()
    (programs / "git-lfs").write_text(DYING.format(real=shutil.which("git-lfs"), root=tmp_path))
    (programs / "git-lfs").chmod(0o755)
    play = HAPPY.replace("sleep 0.5", 'python3 -c \'open(\\"data.bin\\", \\"w\\").write(\\"new!\\" * 5000)\'')
    async with Engine.open(tmp_path, play, ports=ports, env={"XDG_CONFIG_HOME": str(config.parent)}) as engine:
        engine.env["PATH"] = f"{programs}:{engine.environment()['PATH']}"
        engine.kept(PERDURE_CRASH_AT="inside-commit")
        result = await finished(await engine.submit(origin, **TESTED), engine)
        check_shipped(origin, engine, result, files={"data.bin": make_pointer(NEW)})
        assert result.receipt.worker_deaths == 2
        ran = Cli(engine.home.root, engine.root, engine.env)
        verified = await asyncio.to_thread(ran, "verify", "calc-sub")
        assert verified.code == 0, verified.out
    person = {"GIT_CONFIG_GLOBAL": str(tmp_path / "person")}
    git(tmp_path, "lfs", "install", "--skip-repo", **person)
    git(tmp_path, "clone", "-q", "--branch", "perdure/calc-sub", str(origin), "clone", **person)
    assert (tmp_path / "clone" / "data.bin").read_bytes() == NEW

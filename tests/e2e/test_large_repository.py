"""A large repository: the second delivery works on what the first has left, and sees nothing of it."""

from __future__ import annotations

import asyncio
import filecmp
from pathlib import Path

import pytest

from perdure.adapters.git.checkouts import LARGE_CHECKOUT_FILES, CheckoutPool
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.models.crash import CrashPoint
from tests.engine import CALC, Engine, finished, make_target

CONFIG = 'version = 1\n[setup]\ncommands = []\n[[test]]\nname = "unit"\ncommand = "python3 -m unittest -q"\n'

MARKING = """
import os, pathlib, unittest

class Marks(unittest.TestCase):
    def test_is_the_first_here(self):
        found = [name for name in ("seen", "many/1/seen") if os.path.exists(name)]
        found += os.listxattr("many/1") + os.listxattr(".")
        found += [path.name for path in pathlib.Path("many").rglob("*.txt") if path.read_text() != "x\\n"]
        self.assertEqual(found, [])
        for name in ("seen", "many/1/seen", "many/1/1.txt"):
            pathlib.Path(name).write_text("y\\n")
        os.chmod("many/2", 0o700)
        for directory in ("many/1", "."):
            try:
                os.setxattr(directory, "user.seen", b"1")
            except OSError:
                pass
"""

LINES = """
[[line]]
step = "implement"
turn = 1
use = [{ tool = "bash", input = { command = "printf '\\n\\ndef sub(a, b):\\n    return a - b\\n' >> calc.py; echo z > many/3/left; echo z > left" } }]

[[line]]
step = "implement"
say = "Add sub"
"""  # noqa: E501


async def test_deliveries_one_after_another_and_beside_each_other_use_the_same_files_and_each_finds_them_clean(
    tmp_path: Path,
) -> None:
    many = {f"many/{number % 20}/{number}.txt": "x\n" for number in range(LARGE_CHECKOUT_FILES)}
    origin = make_target(tmp_path / "calc.git", {**CALC, **many, "tests/test_marks.py": MARKING})
    asked = {"phases": ["build", "test", "ship"], "config": CONFIG}
    async with Engine.open(tmp_path, LINES) as engine:
        engine.worker()
        (kept,) = await _delivered(engine, origin, ["one"], asked)
        inodes = {path.stat().st_ino for path in kept}
        again = await _delivered(engine, origin, ["two", "three", "four"], asked)
        assert inodes & {path.stat().st_ino for path in again[0]}, "they went from hand to hand"
        for name in ("one", "two", "three", "four"):
            assert not (engine.home.workspace(name) / "clean").exists()
            assert not engine.home.tree(name).exists()


@pytest.mark.timeout(240)
async def test_what_a_killed_worker_was_at_work_in_is_no_other_deliverys_to_begin_with(tmp_path: Path) -> None:
    many = {f"many/{number % 20}/{number}.txt": "x\n" for number in range(LARGE_CHECKOUT_FILES)}
    origin = make_target(tmp_path / "calc.git", {**CALC, **many})
    points = (CrashPoint.DURING_PREPARE, CrashPoint.DURING_TESTS, CrashPoint.DURING_CANARIES)
    async with Engine.open(tmp_path, LINES, env={"PERDURE_CRASH_AT": ",".join(points)}) as engine:
        engine.kept()
        await _delivered(engine, origin, ["one"], {"phases": ["build", "test", "ship"], "config": CONFIG})
        assert sorted(path.stem for path in engine.home.crashes.iterdir()) == sorted(points), "each point was come by"
        vault = Vault.open_or_create(engine.home, str(origin))
        _, base = vault.fetch()
        fresh = CheckoutPool.for_vault(Home(tmp_path / "none"), vault)
        fresh.check_out(base, tmp_path / "fresh")
        kept = len(list((engine.home.root / "checkouts").glob("[!.]*")))
        assert kept > 0
        for number in range(kept):
            CheckoutPool.for_vault(engine.home, vault).check_out(base, tmp_path / f"{number}")
            differing = filecmp.dircmp(tmp_path / "fresh", tmp_path / f"{number}", ignore=[], hide=[])
            assert _differs(differing) == [], "it is what a fresh one would be"
        assert list((engine.home.root / "checkouts").glob("[!.]*")) == []


def _differs(found: filecmp.dircmp[str]) -> list[str]:
    below = [name for one in found.subdirs.values() for name in _differs(one)]
    return [*found.left_only, *found.right_only, *found.diff_files, *found.funny_files, *below]


async def _delivered(engine: Engine, origin: Path, names: list[str], asked: dict[str, object]) -> list[list[Path]]:
    """Deliver them at once; the directories of files that are kept then."""
    submitted = await asyncio.gather(*(engine.submit(origin, id=name, **asked) for name in names))
    results = await asyncio.gather(*(finished(one, engine, timeout=240) for one in submitted))
    for result in results:
        assert result.status == "draft", result
        assert result.tests.status == "green", result.tests
    return [list((engine.home.root / "checkouts").glob("*/tree"))]

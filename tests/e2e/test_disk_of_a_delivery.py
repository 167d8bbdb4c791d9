"""What a delivery that has ended leaves on the disk."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.adapters.git.vault import Vault
from perdure.models.ids import artifact_ref
from tests.engine import HAPPY, TESTED, Engine, finished, make_target

DELIVERY_BYTES = 256 * 1024


def blocks_below(*directories: Path) -> int:
    """Bytes of all blocks that files and directories take."""
    paths = [path for directory in directories for path in (directory, *directory.rglob("*"))]
    return sum(os.lstat(path).st_blocks * 512 for path in paths)


async def test_a_delivery_that_has_ended_leaves_a_quarter_of_a_megabyte(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY) as engine:
        engine.worker()
        home, used = engine.home, list[int]()
        for name in ("first", "second", "third"):
            await finished(await engine.submit(origin, id=name, **(TESTED if name == "first" else {})), engine)
            used.append(blocks_below(home.vaults, home.root / "workspaces", home.root / "trees"))
        assert used[2] - used[1] <= DELIVERY_BYTES
        vault = Vault.open_existing(next(home.vaults.glob("*.git")))
        assert not list(home.workspace("third").glob("logs/*/reports-*"))
        assert list(home.workspace("third").glob("logs/*/report-*")), "what they were read into"
        tips = vault.list_refs("refs/perdure/third/")
        assert [vault.find_damage(tip) for tip in tips.values()] == [""] * len(tips)
        for ref in vault.list_refs(artifact_ref("third", "")):
            assert vault.get_artifact("third", ref.rpartition("/")[2])

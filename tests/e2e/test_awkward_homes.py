"""Homes and repositories at paths with every character that means something to a program which is given them."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.system.home import Home
from perdure.models.errors import BadInput
from tests.engine import HAPPY, Engine, check_shipped, finished, make_target

AWKWARD = "my home#1?a=b&c%20d;'e'\"f\"\\g$HOME`h`(i)[j]{k}*,~!<l>|@^+é漢"


@pytest.mark.long
@pytest.mark.parametrize("grade", ["full", "reduced", "off"])
async def test_a_delivery_is_made_and_found_again_in_an_awkward_home(tmp_path: Path, ports: int, grade: str) -> None:
    root = tmp_path / AWKWARD
    origin = make_target(root.with_name(AWKWARD.replace("%20", "")) / "calc.git")
    async with Engine.open(root, HAPPY, ports=ports, own_server=True, env={"PERDURE_SANDBOX": grade}) as engine:
        engine.kept()
        check_shipped(origin, engine, await finished(await engine.submit(origin), engine), files={})
        assert (engine.home.root / "temporal.db").stat().st_size > 0
        await engine.end_server()
        await engine.start_server()
        assert (await engine.handle().describe()).id == "calc-sub"
    assert {path.name for path in tmp_path.iterdir()} == {AWKWARD, AWKWARD.replace("%20", "")}


@pytest.mark.parametrize("name", ["a:b", "a\nb", "a\tb", "a\x1bb", "a\udcffb", "a\u2028b"])
def test_a_path_that_some_program_cannot_be_told_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / name))
    with pytest.raises(BadInput, match="colon, a control character") as error:
        Home.find()
    assert "\n" not in error.value.where
    assert list(tmp_path.iterdir()) == []

"""The samples in examples/clients fit on one screen each; nothing of them is run here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client_samples import CLIENTS

LINES_MOST = 80
ENDINGS = {".py", ".go", ".ts", ".java", ".sh"}
GENERATED = ("perdure",)
"""Names of files and directories of types that `make schema` writes."""


def written_by_hand() -> list[Path]:
    found = (path.relative_to(CLIENTS) for path in CLIENTS.rglob("*") if path.suffix in ENDINGS)
    return [path for path in found if not {*path.parts, path.stem} & {*GENERATED, "node_modules", "dist", "target"}]


@pytest.mark.parametrize("sample", written_by_hand(), ids=str)
def test_a_sample_is_one_screen_to_copy(sample: Path) -> None:
    lines = (CLIENTS / sample).read_text(encoding="utf-8").splitlines()
    assert len(lines) < LINES_MOST
    assert max(map(len, lines)) < 170

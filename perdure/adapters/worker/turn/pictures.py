"""The application's pages as a step's opening message shows them: pictures out of the vault, as many as it may have."""

from __future__ import annotations

from perdure.adapters.agents.opening import ShownPage
from perdure.adapters.git.vault import Vault
from perdure.adapters.worker.turn.written import read_picture, read_screenshots
from perdure.models.errors import WorkspaceLost
from perdure.models.report import Screenshot, Screenshots

PICTURES_SHOWN = 8
PICTURES_SHOWN_BYTES = 6_000_000
"""Given to a reviewer: some 25,000 tokens; each turn sends them again, and a request may have 32 MB."""


MATERIAL = "screenshots"
"""The one material that is no text: an artifact of Screenshots."""


def pages(vault: Vault, delivery: str, materials: dict[str, str]) -> list[ShownPage]:
    """Return what there is to see, in the order of `[app] pages`; nothing where no screenshots were wanted. What the
    vault has lost is not seen: pictures decide about nothing, so they fail nothing."""
    told = _told(vault, delivery, materials.get(MATERIAL, ""))
    if told is None:
        return []
    seen, room, left = [], PICTURES_SHOWN_BYTES, PICTURES_SHOWN
    for shot in told.pictures:
        png = read_picture(vault, delivery, shot) if left else b""
        shown = bool(png) and len(png) <= room
        seen.append(ShownPage(shot.page, _words(shot, told, shown=shown), png if shown else b""))
        room, left = room - len(png) * shown, left - shown
    if told.note:
        seen.append(ShownPage("(all pages)", told.note))
    return seen


def _told(vault: Vault, delivery: str, artifact: str) -> Screenshots | None:
    try:
        return read_screenshots(vault, delivery, artifact)
    except (WorkspaceLost, ValueError):
        return None


def texts_only(materials: dict[str, str]) -> dict[str, str]:
    """The other materials."""
    return {name: value for name, value in materials.items() if name != MATERIAL}


def _words(shot: Screenshot, told: Screenshots, *, shown: bool) -> str:
    lines = [f"page: {shot.page}", f"commit: {told.commit}"]
    if shown:
        lines.append(f"picture: {shot.width} x {shot.height} pixels, below")
    else:
        lines.append("picture: left out here" if shot.artifact else "picture: none")
    return "\n".join([*lines, *([f"note: {shot.note}"] if shot.note else [])])

"""What a step's opening message is made from: artifacts as text, and the change under review as a diff."""

from __future__ import annotations

from perdure.adapters.git.vault import Vault


def texts(vault: Vault, delivery: str, materials: dict[str, str]) -> dict[str, str]:
    """Names to texts: `plan`, `report` and `review` are artifacts, `base` and `head` become `diff`, others stay."""
    found = {
        name: vault.get_artifact(delivery, value).decode(errors="replace")
        for name, value in materials.items()
        if name in ("plan", "report", "review")
    }
    found |= {name: value for name, value in materials.items() if name not in (*found, "base", "head")}
    if "base" in materials and "head" in materials:
        found["diff"] = vault.diff(materials["base"], materials["head"])
    return found

"""`python -m schemas [ROOT]` writes the schemas below ROOT (default: here); `make schema` does."""

from __future__ import annotations

import sys
from pathlib import Path

from schemas.generate import files


def main(root: Path) -> None:
    """Write what differs, and take away schemas of shapes that are no more."""
    made = files()
    for name, text in made.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(name)
    for path in (root / "docs" / "schema").glob("*.json"):
        if str(path.relative_to(root)) not in made:
            path.unlink()
            print(f"{path.relative_to(root)} is gone")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())

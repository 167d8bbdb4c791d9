"""Command line `python -m schemas [ROOT]`: write the schemas below ROOT (default: here), as `make schema` does."""

from __future__ import annotations

import sys
from pathlib import Path

from schemas.generate import build_files


def main(root: Path) -> None:
    """Write generated files that differ, delete schemas of shapes that no longer exist, and print each path."""
    texts = build_files()
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(name)
    for path in (root / "docs" / "schema").glob("*.json"):
        if str(path.relative_to(root)) not in texts:
            path.unlink()
            print(f"{path.relative_to(root)} is gone")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())

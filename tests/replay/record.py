"""Record the histories that every later version must replay: `python -m tests.replay.record VERSION`.

One for each shape a released version can have in the world (tests/replay/shapes.py): ended, and waiting wherever it can
wait. `--only NAME …` records some, `--into DIR` elsewhere; those of the version that are there are replaced at the end,
when all have been recorded. Machine names are taken out; nothing else is changed.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowHistory

HISTORIES = Path(__file__).parent / "histories"
ENDING = ".json.gz"


class Keeper:
    """Writes histories of one version to a directory: `VERSION-NAME.json.gz`, the same bytes for the same history."""

    def __init__(self, version: str, directory: Path) -> None:
        self.version, self.directory = version, directory

    async def __call__(self, handle: WorkflowHandle[Any, Any], name: str) -> None:
        history = json.loads((await handle.fetch_history()).to_json())
        _anonymous(history)
        text = json.dumps(history, separators=(",", ":"), sort_keys=True)
        path = self.directory / f"{self.version}-{name}{ENDING}"
        assert not path.exists(), f"two histories are called {name}"
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"  {name}: {len(history['events'])} events, {path.stat().st_size:,} bytes", flush=True)


def read(path: Path) -> WorkflowHistory:
    """A kept history, with the id it had: the notices of a delivery are named by it."""
    text = gzip.decompress(path.read_bytes()).decode() if path.name.endswith(".gz") else path.read_text()
    begun = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    return WorkflowHistory.from_json(begun["workflowId"], text)


def name_of(path: Path) -> str:
    """The shape that a file shows, without its version."""
    return path.name.partition(".json")[0].split("-", 1)[1]


async def record(version: str, into: Path, only: list[str]) -> list[str]:
    """Into this directory; which shapes could not be recorded."""
    from tests.replay.shapes import SHAPES

    unknown = set(only) - {shape.__name__ for shape in SHAPES}
    assert not unknown, f"{unknown}: there are {', '.join(shape.__name__ for shape in SHAPES)}"
    with tempfile.TemporaryDirectory(prefix="perdure-record-") as scratch:
        kept = Path(scratch) / "kept"
        kept.mkdir()
        failed = []
        for shape in SHAPES:
            if only and shape.__name__ not in only:
                continue
            print(shape.__name__, flush=True)
            began = time.monotonic()
            root = Path(scratch) / shape.__name__
            root.mkdir()
            try:
                await shape(root, Keeper(version, kept))
            except Exception:  # noqa: BLE001 - the others are recorded all the same
                traceback.print_exc()
                failed.append(shape.__name__)
            print(f"  {time.monotonic() - began:.0f} s", flush=True)
        into.mkdir(parents=True, exist_ok=True)
        for old in into.glob(f"{version}-*.json*"):
            if not (only or failed) or (kept / f"{version}-{name_of(old)}{ENDING}").exists():
                old.unlink()
        for new in sorted(kept.iterdir()):
            shutil.move(new, into / new.name)
    return failed


def _anonymous(value: Any) -> None:
    if isinstance(value, dict):
        value.pop("stackTrace", None)
        for key, inner in value.items():
            if key == "identity":
                value[key] = "worker"
            _anonymous(inner)
    if isinstance(value, list):
        for inner in value:
            _anonymous(inner)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="such as 0.3")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--into", type=Path, default=HISTORIES, metavar="DIR")
    given = parser.parse_args()
    failed = asyncio.run(record(given.version, given.into, given.only))
    if failed:
        print(f"not recorded; again with --only {' '.join(failed)}", file=sys.stderr)
    sys.stdout.flush()
    os._exit(bool(failed))  # the Temporal SDK was seen to crash in an ordinary exit


if __name__ == "__main__":
    main()

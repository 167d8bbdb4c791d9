"""The cost of setup for the second delivery: the same repository prepared three times, in one run.

`make bench-setup`: setup writes an environment of MEGABYTES in FILES files, as a package manager would after it has
downloaded them. The first delivery runs it; the second finds what it made; the third does after the machine was
"started anew", when every byte is compared. The time is that of the whole step: a clean worktree, the commands or the
kept environment, what the sandbox shows, and all of it on the disk. The exit code is 1 when the second takes more than
MOST_S. On a disk that others write to, syncing takes as long as theirs.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from activities.prepare import PrepareActivity
from perdure.adapters.system.home import Home
from perdure.adapters.worker.environments import KeptEnvironment
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.workspace_setup import read_setup_record
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.work import PrepareInput
from tests.adapters.worker.turn.turn_fixtures import in_activity
from tests.engine import CALC, make_target

MEGABYTES, FILES = int(os.environ.get("MEGABYTES", "300")), int(os.environ.get("FILES", "12000"))
MOST_S = 0.5

INSTALL = """
import os, sys
files, each = int(sys.argv[1]), int(sys.argv[2])
for number in range(files):
    directory = f".venv/lib/package{number // 40}"
    if number % 40 == 0:
        os.makedirs(directory)
    with open(f"{directory}/module{number}.py", "wb") as file:
        file.write(os.urandom(each))
"""

CONFIG = f"""
version = 1
[setup]
commands = ["python3 install.py {FILES} {MEGABYTES * 1_000_000 // FILES}"]
[[test]]
name = "there"
command = "ls .venv/lib | grep -q package0"
"""


async def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bench-setup-", dir=os.environ.get("ROOT")) as root:
        origin, home = make_target(Path(root) / "calc.git", {**CALC, "install.py": INSTALL}), Home(Path(root) / "home")
        host = Host.from_environment(home, {**os.environ, "PERDURE_LOCAL_REPOSITORIES": root})
        took = {}
        for name in ("first", "second", "after a restart"):
            if name == "after a restart":
                _as_before_a_restart(home)
            delivery = name.replace(" ", "-")
            request = DeliveryRequest(repository=str(origin), request="x", config=CONFIG)
            await in_activity(PrepareActivity(host).prepare, PrepareInput(delivery=delivery, request=request))
            done = read_setup_record(home.workspace(delivery))
            took[name] = done.seconds
            print(f"{name:16} {done.seconds:6.2f} s   {'kept' if done.reused else 'made'}", flush=True)
        await host.close()
    late = took["second"] > MOST_S
    print(f"{MEGABYTES} MB in {FILES} files: {took['first'] / took['second']:.0f} times as fast; at most {MOST_S} s: "
          f"{'MISSED' if late else 'met'}")  # fmt: skip
    return int(late)


def _as_before_a_restart(home: Home) -> None:
    for path in (home.root / "environments").glob("*/entry.json"):
        entry = KeptEnvironment.model_validate_json(path.read_bytes())
        path.write_text(entry.model_copy(update={"boot": "earlier"}).model_dump_json())


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

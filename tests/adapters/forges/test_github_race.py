"""Several processes at once for one head: one pull request and one comment, and all of them agree on which."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from twin_repository import TOKEN, TwinRepository

from tests.fork_server import fork

PROCESSES = 4

SCRIPT = """
import json, pathlib, sys, time
from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.select import Forges
from perdure.models.errors import ForgeUnavailable

import github  # before the start, so that all start together

told = json.loads(pathlib.Path(sys.argv[1]).read_text())
forge = Forges.from_environment(told["environ"]).forge(told["url"])
proposal = Proposal(**told["proposal"])
here = pathlib.Path(told["here"])


def together(name, do):
    (here / f"{name}-{told['n']}").touch()
    while not (here / name).exists():
        time.sleep(0.001)
    while True:
        try:
            return do()
        except ForgeUnavailable:
            time.sleep(0.05)


pull = together("open", lambda: forge.open_or_update_pull(proposal)).pull_request.number
comment = together("comment", lambda: forge.write_status_comment(told["issue"], proposal.delivery, "Working on it."))
pathlib.Path(sys.argv[1]).write_text(json.dumps([pull, comment]))
"""


async def test_processes_that_begin_at_once_open_one_pull_request_and_one_comment(
    twin: TwinRepository, tmp_path: Path
) -> None:
    issue = twin.hub.add_issue("me/calc", "Add sub", "x")
    proposal = twin.proposal()
    told = {
        "environ": {"PERDURE_GITHUB_URL": twin.hub.url, "PERDURE_GITHUB_TOKEN": TOKEN},
        "url": f"{twin.hub.url}/me/calc.git",
        "proposal": {name: getattr(proposal, name) for name in proposal.__dataclass_fields__},
        "issue": issue,
        "here": str(tmp_path),
    }
    script, running = tmp_path / "race.py", []
    script.write_text(SCRIPT)
    with Path(os.devnull).open("r+b") as nothing:
        for n in range(PROCESSES):
            (given := tmp_path / f"{n}.json").write_text(json.dumps(told | {"n": n}))
            files, env = (nothing.fileno(), nothing.fileno(), 2), {"PATH": os.environ["PATH"]}
            running.append(fork(str(script), str(given), env=env, cwd=tmp_path, files=files))
    try:
        for moment in ("open", "comment"):
            while len(list(tmp_path.glob(f"{moment}-*"))) < PROCESSES:
                await asyncio.sleep(0.01)
            (tmp_path / moment).touch()
        assert [await asyncio.to_thread(one.wait, 60) for one in running] == [0] * PROCESSES
        answers = [json.loads((tmp_path / f"{n}.json").read_text()) for n in range(PROCESSES)]
    finally:
        for one in running:
            one.kill()
    (pull,) = twin.hub.pulls("me/calc")
    (comment,) = twin.hub.comments("me/calc", issue)
    assert {answer[0] for answer in answers} == {pull["number"]}
    assert comment["html_url"] in {answer[1] for answer in answers}
    assert comment["body"] == "<!-- perdure:status=d-1 -->\nWorking on it."

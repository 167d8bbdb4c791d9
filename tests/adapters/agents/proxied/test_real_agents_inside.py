"""Claude Code and Codex in the sandbox, with neither network nor key: by the proxy's socket they do their work."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from proxied_agents import KEY, Books, Serve

from perdure.adapters.agents.proxied.upstream import ANTHROPIC, RESPONSES, WIRE_VARIABLES, Upstream
from perdure.adapters.sandbox import bridge
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.sandbox.grades import probe
from perdure.adapters.system.home import Home
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.real_agents import claude, codex, package
from tests.waiting import patient

pytestmark = pytest.mark.long

PORT = 8377
INSIDE = f"http://127.0.0.1:{PORT}"
LOOK = f"""
env > env.txt; cat /proc/$PPID/environ >> env.txt 2>&1
python3 - <<'LOOK'
import socket, urllib.error, urllib.request
with open('reach.txt', 'w') as told:
    for host, port in (('192.0.2.1', 80), ('127.0.0.1', int(open('port.txt').read()))):
        try:
            socket.create_connection((host, port), 2)
            print('reached', host, port, file=told)
        except OSError:
            print('nothing', file=told)
    for path in ('/rehearsal/report', '/v1/models', '/v1/files', '/'):
        try:
            print(urllib.request.urlopen('{INSIDE}' + path).status, file=told)
        except urllib.error.HTTPError as error:
            print(error.code, file=told)
LOOK
"""
PLAY = """
[[line]]
step = "implement"
turn = 1
use = [{ tool = "write", input = { path = "lib/calc.py", content = "def add(a, b):\\n    return a - b\\n" } }]
[[line]]
step = "implement"
turn = 2
[[line.use]]
tool = "read"
input.path = "lib/calc.py"
[[line.use]]
tool = "edit"
input.path = "lib/calc.py"
input.old = "    return a - b\\n"
input.new = "    return a + b\\n"
[[line]]
step = "implement"
turn = 3
[[line.use]]
tool = "bash"
input.command = '''__LOOK__'''
[[line]]
step = "implement"
turn = 4
say = "Add add"
"""


@pytest.mark.parametrize(
    ("wire", "name"),
    [
        pytest.param(ANTHROPIC, "claude", marks=pytest.mark.needs("claude")),
        pytest.param(RESPONSES, "codex", marks=pytest.mark.needs("codex")),
    ],
)
async def test_an_agent_inside_does_its_work_and_finds_no_key_and_no_host_but_the_model(
    wire: str, name: str, serve: Serve, books: Books, tmp_path: Path
) -> None:
    if (error := probe().error) is not None:
        pytest.skip(f"BUBBLEWRAP DOES NOT WORK HERE: {error}")
    tree = tmp_path / "tree"
    tree.mkdir()
    sandbox = BubblewrapSandbox(
        Home(tmp_path / "home"), compute_binds(tmp_path / "none", os.environ["PATH"], Path.home())
    )
    async with Rehearsal(Screenplay.parse(PLAY.replace("__LOOK__", LOOK))) as twin:
        (tree / "port.txt").write_text(twin.url.rpartition(":")[2])
        base = twin.url if wire == ANTHROPIC else f"{twin.url}/v1"
        variable, header = next(iter(WIRE_VARIABLES[wire].key_headers.items()))
        proxy = await serve(Upstream(wire, base, KEY, variable=variable, header=header))
        words, variables = (claude if name == "claude" else codex)(url=INSIDE)
        python = os.path.realpath(sys.executable)
        bridged = shlex.join([python, "-I", "-S", bridge.__file__, str(proxy.socket), str(PORT), *words])
        command = SandboxCommand(
            f"mkdir -p $HOME/codex && {bridged} <<<$'Step: implement\\n\\nWrite add.'",
            worktree=tree,
            output=tmp_path / "output",
            timeout_s=patient(60),
            env={**variables, "CODEX_HOME": "/home/agent/codex"},
            visible_paths=(package(name), proxy.socket, Path(bridge.__file__), Path(sys.base_prefix)),
        )
        ended = await sandbox.run_command(command)
        said = command.output.read_text(errors="replace")
        assert ended.exit_code == 0, (ended, said)
        assert (tree / "lib" / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
        assert "Add add" in said
        assert [(call.turn, call.status) for call in twin.calls] == [(turn, 200) for turn in range(1, 5)]
        assert twin.report()["repeated"] == 0
    assert (tree / "reach.txt").read_text().split() == ["nothing", "nothing", "404", "404", "404", "404"]
    found = (tree / "env.txt").read_text()
    assert "placeholder" in found, "the shell has seen the agent's variables"
    assert KEY not in found + said
    assert [request.turn for request in books.seen] == [True] * 4
    assert all(reply.usage.output_tokens for reply in books.replies)

"""Claude Code and Codex behind the proxy, inside and outside the sandbox: no key, begun again, held back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from proxied_agents import KEY, Books, Played, Serve, says

from perdure.adapters.agents.proxied.base import ProxiedReply, ProxiedRequest, UpstreamCall
from perdure.adapters.agents.proxied.proxy import Proxy
from perdure.adapters.agents.proxied.upstream import ANTHROPIC, RESPONSES, WIRE_VARIABLES, Upstream
from perdure.adapters.sandbox import bridge
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.sandbox.grades import probe
from perdure.adapters.system.home import Home
from perdure.models.budget.ledger import LimitReached, Spend
from perdure.models.errors import BudgetReached, ModelRefusesUs
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.real_agents import claude, codex, package, told
from tests.waiting import patient

pytestmark = pytest.mark.long

PLAY = """
title = "two turns"
[[line]]
step = "implement"
turn = 1
say = "I write it."
use = [{ tool = "bash", input = { command = "echo hello > a.txt" } }]
[[line]]
step = "implement"
turn = 2
use = [{ tool = "bash", input = { command = "cat a.txt" } }]
[[line]]
step = "implement"
turn = 3
say = "Done."
"""
PROMPT = "Step: implement\n\nWrite it.\n"
AGENTS = [
    pytest.param("claude", id="Claude Code", marks=pytest.mark.needs("claude")),
    pytest.param("codex", id="Codex", marks=pytest.mark.needs("codex")),
]
WIRES = {"claude": ANTHROPIC, "codex": RESPONSES}


@contextlib.asynccontextmanager
async def port(proxy: Proxy) -> AsyncIterator[str]:
    """The port that leads to the socket, as adapters/sandbox/bridge.py makes one inside the sandbox; its address."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(proxy.socket))
        await asyncio.gather(copy(reader, back), copy(there, writer))

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def upstream(name: str, url: str) -> Upstream:
    if name == "claude":
        return Upstream.anthropic(url, KEY)
    return Upstream(RESPONSES, f"{url}/v1", KEY, variable="OPENAI_API_KEY", header="authorization")


def words(name: str, url: str) -> tuple[list[str], dict[str, str]]:
    return claude("--bare", url=url) if name == "claude" else codex(url=url)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    path.mkdir()
    return path


async def run(name: str, proxy: Proxy, tree: Path, home: Path) -> tuple[int, str]:
    async with port(proxy) as url:
        return await told(words(name, url), PROMPT, tree, home)


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_begun_again_in_a_fresh_home_asks_the_same_and_nothing_is_paid_twice(
    serve: Serve, books: Books, tree: Path, tmp_path: Path, name: str
) -> None:
    async with Rehearsal(Screenplay.parse(PLAY)) as twin:
        proxy = await serve(upstream(name, twin.url))
        assert (await run(name, proxy, tree, tmp_path / "home"))[0] == 0
        paid = len(twin.calls)
        for path in (tree, tmp_path / "home"):  # its path is in what it asks: inside the sandbox it is always the same
            shutil.rmtree(path)
        tree.mkdir()
        code, said = await run(name, proxy, tree, tmp_path / "home")
    assert code == 0, said
    first, again = books.seen[:paid], books.seen[paid:]
    if name == "codex":  # it tells the model of each command's time, and makes up an id for its output
        first, again = first[:1], again[:1]
    assert [request.key for request in again] == [request.key for request in first], _difference(first, again)
    assert len(twin.calls) == paid + (len(books.seen) - paid - 1 if name == "codex" else 0)
    assert (tree / "a.txt").read_text() == "hello\n"


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_ends_soon_after_a_wrong_key(
    serve: Serve, books: Books, tree: Path, tmp_path: Path, name: str
) -> None:
    kind = {"type": "authentication_error", "message": "invalid key"}
    async with Played(says({"type": "error", "error": kind}, 401)) as api:
        base = "" if name == "claude" else "/v1"
        code, _ = await run(name, await serve(api.upstream(WIRES[name], base)), tree, tmp_path / "home")
    assert code != 0
    assert all(isinstance(error, ModelRefusesUs) for error in books.failures)
    assert len([request for request in books.asked if request.turn]) <= 2, "it is not tried eight times"


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_ends_by_itself_when_its_budget_is_reached(
    serve: Serve, books: Books, tree: Path, tmp_path: Path, name: str
) -> None:
    books.error = BudgetReached(LimitReached(limit="usd", reason="$1.00 of $1.00 are spent", spend=Spend(usd=1.0)))
    async with Rehearsal(Screenplay.parse(PLAY)) as twin:
        code, said = await run(name, await serve(upstream(name, twin.url)), tree, tmp_path / "home")
    assert code != 0
    assert "$1.00 of $1.00 are spent" in said
    assert len([request for request in books.seen if request.turn]) <= 3, "Claude Code asks twice more, at once"


class Waits(Books):
    """Lets the second turn wait for a while."""

    async def reply(self, request: ProxiedRequest, ask: UpstreamCall) -> ProxiedReply:
        if len([asked for asked in self.asked if asked.turn]) == 1:
            await asyncio.sleep(5)
        return await super().reply(request, ask)


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_waits_while_its_request_is_held_back(
    serve: Serve, tree: Path, tmp_path: Path, name: str
) -> None:
    books = Waits()
    async with Rehearsal(Screenplay.parse(PLAY)) as twin:
        code, said = await run(name, await serve(upstream(name, twin.url), books), tree, tmp_path / "home")
    assert code == 0, said
    assert len([request for request in books.seen if request.turn]) == 3


def _difference(one: list[ProxiedRequest], other: list[ProxiedRequest]) -> str:
    """The first place where the bodies of two requests differ."""
    for first, second in zip(one, other, strict=False):
        if first.key != second.key:
            return _places(first.body, second.body)
    return f"{len(one)} and {len(other)} requests"


def _places(one: Any, other: Any, place: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({*one, *other})
        return "".join(_places(one.get(name), other.get(name), f"{place}.{name}") for name in names)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return "".join(_places(a, b, f"{place}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True)))
    return "" if one == other else f"\n{place}: {json.dumps(one)[:300]} / {json.dumps(other)[:300]}"


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
PLAY_OF_INSIDE = """
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
    async with Rehearsal(Screenplay.parse(PLAY_OF_INSIDE.replace("__LOOK__", LOOK))) as twin:
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

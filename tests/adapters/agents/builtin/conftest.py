"""The agent's real parts for tests: a worktree, a sandbox, a model behind HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from perdure.adapters.agents.builtin.model import Model
from perdure.adapters.agents.builtin.tools import Toolbox
from perdure.adapters.sandbox.environment import Binds, compute_binds
from perdure.adapters.sandbox.grades import OffSandbox, probe, sandbox_for
from perdure.adapters.system.home import Home
from perdure.models.config.repository import SandboxGrade
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.homes import fresh_home

PlayedModel = Callable[..., Awaitable[tuple[Rehearsal, Model]]]


@pytest.fixture
def worktree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    (path / "src").mkdir(parents=True)
    (path / "src" / "durations.py").write_text("def parse(text):\n    return int(text)\n")
    return path


@pytest.fixture
def binds(worktree: Path) -> Binds:
    return compute_binds(worktree, "/usr/bin:/bin", Path.home())


@pytest.fixture
def toolbox(worktree: Path, tmp_path: Path) -> Toolbox:
    """With no sandbox: what file tools refuse, they refuse by themselves."""
    sandbox = OffSandbox(Home(tmp_path / "home"), Binds(path=("/usr/bin", "/bin")))
    return Toolbox(worktree=worktree, sandbox=sandbox, log_dir=tmp_path / "logs", check=lambda: None)


@pytest.fixture
def walled(toolbox: Toolbox, tmp_path: Path, binds: Binds) -> Toolbox:
    error = probe().error
    if error is not None:
        pytest.skip(f"BUBBLEWRAP DOES NOT WORK HERE: {error}")
    toolbox.sandbox = sandbox_for(SandboxGrade.FULL, fresh_home(tmp_path / "walled"), binds)
    return toolbox


@pytest.fixture
async def played() -> AsyncIterator[PlayedModel]:
    """Start the twin with a screenplay; get it and a model that asks it."""
    async with AsyncExitStack() as stack:

        async def start(script: str, **options: float) -> tuple[Rehearsal, Model]:
            twin = await stack.enter_async_context(Rehearsal(Screenplay.parse(script)))
            model = Model("sk-rehearsal-0123456789", twin.url, **options)
            stack.push_async_callback(model.aclose)
            return twin, model

        yield start

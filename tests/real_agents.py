"""Claude Code and Codex themselves, as anybody runs them, pointed at a rehearsal."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from tests import needs
from tests.waiting import patient

PROVIDER = (
    '{{name="rehearsal",base_url="{url}/v1",env_key="PROVIDER_KEY",wire_api="responses",'
    "supports_websockets=false,request_max_retries=0,stream_max_retries=0}}"
)
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "1",
    "DISABLE_AUTOUPDATER": "1",
    "IS_SANDBOX": "1",
}
WITHIN_S = 60


def claude(*more: str, url: str) -> tuple[list[str], dict[str, str]]:
    """The words and variables of Claude Code that reads its prompt from standard input."""
    words = ["-p", "--output-format", "json", "--permission-mode", "bypassPermissions", "--model", "claude-sonnet-5-5"]
    return [str(program("claude")), *words, *more], {
        **QUIET,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "placeholder",
    }


def codex(*more: str, url: str, model: str = "gpt-5.5") -> tuple[list[str], dict[str, str]]:
    """The words and variables of Codex that reads its prompt from standard input."""
    setting = ["-c", "model_provider=rehearsal", "-c", f"model_providers.rehearsal={PROVIDER.format(url=url)}"]
    words = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", model]
    return [str(program("codex")), *words, *setting, *more, "-"], {"PROVIDER_KEY": "placeholder"}


def program(name: str) -> Path:
    """The binary itself, not the link to it; all it needs lies beside and above it, in its package."""
    found = needs.find_program(name)
    assert found is not None
    return Path(found).resolve()


def package(name: str) -> Path:
    """The directory that a sandbox has to show for the program to run there."""
    return next(one for one in program(name).parents if (one / "package.json").exists())


async def told(agent: tuple[list[str], dict[str, str]], prompt: str, directory: Path, home: Path) -> tuple[int, str]:
    """Give it the prompt in a directory, with a home of its own; its exit code and what it printed."""
    words, variables = agent
    own = {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "claude"), "CODEX_HOME": str(home / "codex")}
    (home / "codex").mkdir(parents=True, exist_ok=True)
    env = {"PATH": os.environ["PATH"], **own, **variables}
    process = await asyncio.create_subprocess_exec(
        *words, cwd=directory, env=env, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(prompt.encode()), patient(WITHIN_S))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said.decode()

"""A rehearsal on a port of its own, and the real client pointed at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal

Play = Callable[..., Awaitable[Rehearsal]]
Ask = Callable[..., Awaitable[Any]]


@pytest.fixture
async def rehearsal() -> AsyncIterator[Play]:
    """`await rehearsal(toml)` starts one; all are stopped at the end."""
    async with AsyncExitStack() as stack:

        async def play(toml: str, **options: Any) -> Rehearsal:
            return await stack.enter_async_context(Rehearsal(Screenplay.parse(toml), **options))

        yield play


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    """`await ask(twin, messages, **parameters)`: one streamed message through the real client, no retries.

    `messages` may be one user text; `step` makes the system prompt, `key` the credential.
    """
    async with AsyncExitStack() as stack:
        clients: dict[tuple[str, str], AsyncAnthropic] = {}

        async def send(
            twin: Rehearsal,
            messages: str | list[Any] = "Go.",
            *,
            step: str = "implement",
            key: str = "rehearsal",
            timeout: float = 5.0,
            **parameters: Any,
        ) -> Any:
            client = clients.get((twin.url, key))
            if client is None:
                made = AsyncAnthropic(api_key=key, base_url=twin.url, max_retries=0)
                client = clients[twin.url, key] = await stack.enter_async_context(made)
            body = {
                "model": "claude-sonnet-5-5",
                "max_tokens": 1000,
                "system": f"Step: {step}\n\nYou write software.",
                "messages": messages if isinstance(messages, list) else [{"role": "user", "content": messages}],
                **parameters,
            }
            async with client.messages.stream(**body, timeout=timeout) as stream:
                return await stream.get_final_message()

        yield send

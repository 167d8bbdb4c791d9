"""Errors on the way to the model: the agent's and ours, in the words of the API; none takes the key anywhere."""

from __future__ import annotations

import anthropic
import pytest
from proxied_agents import KEY, Books, Played, Serve, event, says, streams
from test_proxy import STREAM, Agent, rehearsal, streamed

from perdure.adapters.agents.proxied.upstream import ANTHROPIC, Upstream
from perdure.models.errors import ModelRefusesUs, ModelUnavailable
from perdure.rehearsal.server import Rehearsal

__all__ = ["rehearsal"]


@pytest.mark.parametrize("end", ["cut", ""])
async def test_a_stream_that_is_cut_is_neither_kept_nor_given_to_the_agent(
    serve: Serve, agent: Agent, books: Books, end: str
) -> None:
    async with Played(streams(*STREAM[:-1], end=end)) as upstream:
        client = agent(await serve(upstream.upstream(ANTHROPIC)))
        with pytest.raises(anthropic.APIStatusError) as refused:
            await streamed(client)
    assert refused.value.status_code == 503
    assert not books.kept
    (error,) = books.failures
    assert isinstance(error, ModelUnavailable)
    assert not error.limit_reason
    assert books.begun == 1, "it may have been billed"


@pytest.mark.parametrize(
    ("status", "kind", "typed", "again"),
    [
        (400, "invalid_request_error", ModelRefusesUs, "false"),
        (401, "authentication_error", ModelRefusesUs, "false"),
        (403, "permission_error", ModelRefusesUs, "false"),
        (404, "not_found_error", ModelRefusesUs, "false"),
        (429, "rate_limit_error", ModelUnavailable, "true"),
        (500, "api_error", ModelUnavailable, "true"),
        (529, "overloaded_error", ModelUnavailable, "true"),
    ],
)
async def test_an_error_of_the_api_is_the_agents_and_ours(
    serve: Serve, agent: Agent, books: Books, status: int, kind: str, typed: type[Exception], again: str
) -> None:
    said = {"type": "error", "error": {"type": kind, "message": f"no, not with {KEY}"}}
    async with Played(says(said, status, retry_after="7")) as upstream:
        client = agent(await serve(upstream.upstream(ANTHROPIC)))
        with pytest.raises(anthropic.APIStatusError) as refused:
            await streamed(client)
    answer = refused.value
    assert (answer.status_code, answer.type) == (status, kind)
    assert answer.response.headers["x-should-retry"] == again
    assert KEY not in answer.response.text
    assert "[redacted]" in answer.response.text
    (error,) = books.failures
    assert isinstance(error, typed)
    assert KEY not in str(error)
    assert books.begun == 0, "nothing was billed"
    if isinstance(error, ModelUnavailable):
        assert error.retry_after == 7
        assert bool(error.limit_reason) == (status in (429, 529))


async def test_an_overload_inside_a_stream_is_one(serve: Serve, agent: Agent, books: Books) -> None:
    overloaded = event("error", type="error", error={"type": "overloaded_error", "message": "Overloaded"})
    async with Played(streams(STREAM[0], overloaded)) as upstream:
        client = agent(await serve(upstream.upstream(ANTHROPIC)))
        with pytest.raises(anthropic.APIStatusError) as refused:
            await streamed(client)
    assert refused.value.status_code == 529
    assert isinstance(books.failures[0], ModelUnavailable)
    assert books.failures[0].limit_reason


async def test_an_end_of_the_step_ends_the_agent(
    rehearsal: Rehearsal, serve: Serve, agent: Agent, books: Books
) -> None:
    books.error = ModelRefusesUs("the budget of $1.00 is used up")
    client = agent(await serve(Upstream.anthropic(rehearsal.url, KEY)), max_retries=5)
    with pytest.raises(anthropic.BadRequestError, match="used up"):
        await streamed(client)
    assert len(books.seen) == 1, "it is not tried again"
    assert not rehearsal.calls


async def test_an_upstream_that_is_not_there_is_unavailable(serve: Serve, agent: Agent, books: Books) -> None:
    client = agent(await serve(Upstream.anthropic("http://127.0.0.1:9", KEY)))
    with pytest.raises(anthropic.APIStatusError) as refused:
        await streamed(client)
    assert refused.value.status_code == 503
    assert isinstance(books.failures[0], ModelUnavailable)


async def test_a_redirect_takes_the_conversation_nowhere(serve: Serve, agent: Agent, books: Books) -> None:
    async with Played(says({}, 307, location="http://127.0.0.1:9/v1/messages")) as upstream:
        client = agent(await serve(upstream.upstream(ANTHROPIC)))
        with pytest.raises(anthropic.APIStatusError):
            await streamed(client)
    assert isinstance(books.failures[0], ModelRefusesUs)
    assert len(upstream.calls) == 1

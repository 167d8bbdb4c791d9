"""What Claude Code sends beyond the API that everybody has: taken with its header, an unknown parameter without."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rehearsal.wire_fixtures import Json, post

TOOLS: list[Json] = [{"name": "bash", "input_schema": {"type": "object"}, "defer_loading": True}]
USER: Json = {"role": "user", "content": "Step: implement"}
CASES: dict[str, tuple[Json, str]] = {
    "context-management-2025-06-27": ({"context_management": {"edits": []}}, "context_management: Extra inputs"),
    "advanced-tool-use-2025-11-20": ({"tools": TOOLS}, "tools.0.defer_loading: Extra inputs"),
    "thinking-display-updates-2026-08-18": (
        {"thinking": {"type": "adaptive", "display": "updates"}},
        "thinking.display: Input should be 'summarized' or 'omitted'",
    ),
    "thinking-binding-controls-2026-08-01": (
        {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}},
        "thinking.block_binding: Extra inputs",
    ),
    "per-turn-control-2026-07-01": (
        {"messages": [{**USER, "output_config": {"effort": "low"}}]},
        "messages.0.output_config: Extra inputs",
    ),
    "compact-2026-09-04": ({"compaction": {"type": "summarize"}}, "compaction: Extra inputs"),
    "mid-conversation-tool-changes-2026-07-01": (
        {"messages": [USER, {"role": "system", "content": "Another tool."}]},
        "messages.1.role: Input should be 'user' or 'assistant'",
    ),
}
HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}


def asked(**more: Any) -> Json:
    return {"model": "m", "max_tokens": 9, "messages": [USER], **more}


@pytest.mark.parametrize("beta", CASES)
async def test_a_betas_parameter_is_taken_with_its_header_only(rehearsal, beta):
    twin = await rehearsal('[[line]]\nstep = "implement"\nturn = 1\nsay = "Yes."')
    parameter, complaint = CASES[beta]
    url = f"{twin.url}/v1/messages?beta=true"
    refused = await post(url, asked(**parameter), **HEADERS)
    assert (refused.status_code, complaint in refused.json()["error"]["message"]) == (400, True)
    taken = await post(url, asked(**parameter), **HEADERS, **{"anthropic-beta": f"another-2020-01-01,{beta}"})
    assert taken.status_code == 200, taken.text


async def test_a_summary_is_a_reply_of_one_block_that_no_line_answers(rehearsal):
    twin = await rehearsal('[[line]]\nstep = "review"\nsay = "Yes."')
    beta = {**HEADERS, "anthropic-beta": "compact-2026-09-04"}
    reply = (await post(f"{twin.url}/v1/messages", asked(compaction={"type": "summarize"}), **beta)).json()
    assert (reply["stop_reason"], [block["type"] for block in reply["content"]]) == ("compaction", ["compaction"])
    formatted = {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}
    body = asked(compaction={"type": "summarize"}, **formatted)
    refused = await post(f"{twin.url}/v1/messages", body, **beta)
    assert "cannot be combined" in refused.json()["error"]["message"]


async def test_counting_tokens_is_answered_and_is_no_call(rehearsal):
    twin = await rehearsal('[[line]]\nsay = "Yes."')
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 4000}]}
    counted = await post(f"{twin.url}/v1/messages/count_tokens", body, **HEADERS)
    assert 1000 <= counted.json()["input_tokens"] < 1100
    refused = await post(f"{twin.url}/v1/messages/count_tokens", {**body, "colour": "red"}, **HEADERS)
    assert refused.json()["error"]["message"] == "colour: Extra inputs are not permitted"
    assert twin.report()["calls"] == 0

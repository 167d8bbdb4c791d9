"""generateContent: a conversation of two turns, streamed and whole, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rehearsal.wire_fixtures import PLAY, SCHEMA, Json, frames, post

URL = "{}/v1beta/models/gemini-x:{}"
KEY = {"x-goog-api-key": "k"}


def asked(*contents: Json, **more: Any) -> Json:
    return {
        "systemInstruction": {"parts": [{"text": "Step: implement"}]},
        "contents": [{"role": "user", "parts": [{"text": "Go."}]}, *contents],
        "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": {"type": "object"}}]}],
        **more,
    }


async def test_a_conversation_goes_on_with_what_the_tools_gave(rehearsal):
    twin = await rehearsal(PLAY)
    first = (await post(URL.format(twin.url, "generateContent"), asked(), **KEY)).json()
    content = first["candidates"][0]["content"]
    calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
    assert [(call["name"], call["args"]) for call in calls] == [("look", {"path": "ä.py"}), ("look", {"path": "b.py"})]
    parts = [{"functionResponse": {"name": "look", "response": {"output": "def add"}}} for _ in calls]
    second = (
        await post(URL.format(twin.url, "generateContent"), asked(content, {"role": "user", "parts": parts}), **KEY)
    ).json()
    assert second["candidates"][0]["content"]["parts"] == [{"text": "Done."}]
    assert second["candidates"][0]["finishReason"] == "STOP"
    assert second["usageMetadata"]["cachedContentTokenCount"] > 0
    assert [(call.step, call.turn) for call in twin.calls] == [("implement", 1), ("implement", 2)]


async def test_the_stream_is_the_same_reply_as_events_or_as_an_array(rehearsal):
    twin = await rehearsal(PLAY)
    whole = (await post(URL.format(twin.url, "generateContent"), asked(), **KEY)).json()
    url = URL.format(twin.url, "streamGenerateContent")
    as_events = frames(await post(f"{url}?alt=sse", asked(), **KEY))
    as_array = json.loads((await post(url, asked(), **KEY)).text)
    assert as_events == as_array
    parts = [part for one in as_events for part in one["candidates"][0]["content"]["parts"]]
    spoken = [part["text"] for part in parts if "text" in part and not part.get("thought")]
    assert "".join(spoken) == "I look at the file before I change it."
    assert [one["candidates"][0].get("finishReason") for one in as_events][-2:] == [None, "STOP"]
    assert [part for part in parts if "functionCall" in part] == [
        part for part in whole["candidates"][0]["content"]["parts"] if "functionCall" in part
    ]


async def test_an_answer_follows_the_schema_of_the_request(rehearsal):
    twin = await rehearsal(PLAY)
    body = asked(generationConfig={"responseMimeType": "application/json", "responseJsonSchema": SCHEMA})
    body["systemInstruction"]["parts"][0]["text"] = "Step: plan"
    answer = (await post(URL.format(twin.url, "generateContent"), body, **KEY)).json()
    assert answer["candidates"][0]["content"]["parts"][0]["text"] == '{"title": "A plan, with ümlauts"}'


CALL = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (asked(colour="red"), 'Unknown name "colour": Cannot find field.'),
        (asked({"role": "user", "parts": [{"txt": "x"}]}), "Unknown name \"txt\" at 'contents.1.parts.0'"),
        (asked(CALL), "number of function response parts is equal"),
        (asked(CALL, {"role": "user", "parts": [{"text": "Go on."}]}), "number of function response parts is equal"),
    ],
)
async def test_what_the_api_would_not_take_is_refused_in_its_words(rehearsal, body, words):
    twin = await rehearsal(PLAY)
    answer = await post(URL.format(twin.url, "generateContent"), body, **KEY)
    assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert words in answer.json()["error"]["message"]


async def test_a_key_and_a_known_method_are_needed(rehearsal):
    twin = await rehearsal(PLAY)
    assert (await post(URL.format(twin.url, "generateContent"), asked(), accept="*/*")).status_code == 403
    assert (await post(URL.format(twin.url, "embedContent"), asked(), **KEY)).status_code == 404
    assert (await post(URL.format(twin.url, "generateContent") + "?key=k", asked(), accept="*/*")).status_code == 200

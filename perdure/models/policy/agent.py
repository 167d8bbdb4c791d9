"""The model and the agent's tools."""

from __future__ import annotations

RETRY_PAUSE_MODEL_S = (1.0, 60.0)
"""First and longest pause after a model error that did not say when to come back; doubles, with jitter."""

RETRY_AFTER_CAP_S = 600.0
"""A model API may ask for hours; ten minutes keeps the Web UI's countdown honest and costs one request."""

REPLIES_CUT_PER_TURN = 5
"""Replies that broke off on their way may have been billed, each of them: a line this bad needs a person."""

IDENTICAL_CALLS_NUDGE = 3
IDENTICAL_CALLS_STOP = 5
"""The same tool call with the same input in a row: first a word to the model, then the end of the step."""

REASKS = 1
"""How often a model may correct a structured answer that did not validate."""

TOOL_TIMEOUT_S = 120.0
TOOL_TIMEOUT_MAX_S = 600.0
"""One command of the agent: the default, and the most it may ask for."""

TOOL_OUTPUT_HEAD = 10_000
TOOL_OUTPUT_TAIL = 20_000
"""Characters of a tool's output that the model sees; the beginning says what ran, the end says how it ended."""

MODEL_CONNECT_S = 10.0
MODEL_SILENCE_S = 120.0
"""Reaching the model API, and the longest it may send nothing: its pings come every few seconds."""

MODEL_REPLY_S = 3600.0
"""For one whole reply, however alive its stream looks: 128,000 tokens at 50 a second take 43 minutes."""

MODEL_REPLY_BYTES = 64 * 1024**2
MODEL_ERROR_BYTES = 1024**2
"""Of a reply's stream (128,000 tokens, each in an event of its own, are 20 MB), and of an error's body."""

MODEL_EVENT_BYTES, MODEL_EVENT_LINES = 4 * 1024**2, 1000
"""Of one event of the stream: two lines, and some hundred KB where what the model thought is signed."""

READ_FILE_BYTES = 10_000_000
READ_LINES = 2000
READ_LINE_CHARS = 2000
"""What the read tool takes and shows at once: the largest file, lines, and characters of one line."""

SEARCH_S = 20.0
SEARCH_FILES = 50_000
SEARCH_FILE_BYTES = 2_000_000
SEARCH_RESULTS = 200
SEARCH_LINE_CHARS = 300
"""One grep or glob: seconds, files looked at, the largest of them, results and characters a result shown."""

MATERIAL_CHARS = 200_000
"""Of one plan, diff or report in an opening message, some 60,000 tokens: what is longer is better read with tools."""

NOTE_BYTES = 32 * 1024
"""Of one AGENTS.md: a longer one costs more in every turn than it helps."""

"""Text of models, tools and strangers, wherever it is shown: nothing in it is hidden from who reads it; and amounts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.agents.builtin import user_messages
from perdure.adapters.agents.text import first_line
from perdure.adapters.checks.findings import secret_leaks
from perdure.adapters.checks.tamper import missing_tests
from perdure.adapters.forges import artifacts
from perdure.adapters.forges import markdown as forge_markdown
from perdure.adapters.notify import webhook
from perdure.models.checks import verdict_text
from perdure.models.checks.report import Tampering
from perdure.models.webui import details
from perdure.models.webui import markdown as web_ui_markdown
from perdure.render import formatting
from perdure.text import (
    cut_bytes,
    cut_middle,
    format_count,
    format_money,
    format_tokens,
    one_line,
    redact_values,
    shorten,
    span,
    visible,
    without_control,
)

UNSEEN = {
    "arabic letter mark": "\u061c",
    "tag characters": "\U000e0001\U000e0041\U000e007f",
    "variation selectors": "\ufe0f\U000e0100\U000e01ef",
    "right to left": "\u202e\u2067\u200f",
    "of zero width": "\u200b\u2060\ufeff\u00ad",
    "fillers": "\u115f\u3164\uffa0\u2800\u034f",
    "control": "\x00\x08\x7f\x9b",
    "annotations": "\ufff9\ufffb",
    "private and no characters": "\ue000\U000f0000\ud800",
}
SHOWN: dict[str, Callable[[str], str]] = {
    "the terminal": visible,
    "a line of the terminal": one_line,
    "the report": formatting.visible_text,
    "a line of the report": formatting.visible_line,
    "an issue in a prompt": user_messages.strip_hidden,
    "a turn's summary": lambda text: first_line(text, 100),
    "a forge's title": forge_markdown.neutral_title,
    "a forge's text": forge_markdown.neutral_text,
    "a forge's line": forge_markdown.neutral_line,
    "a forge's name": forge_markdown.code_span,
    "a forge's output": artifacts.fence_text,
    "the Web UI's cell": lambda text: web_ui_markdown.escape_line(text, 100),
    "the Web UI's name": details.code_span,
    "a chat": webhook._code_span,
    "a test's name": verdict_text.label_of,
    "a hit's title": lambda text: missing_tests.make_hit(Tampering.GONE, text).title,
    "a file's name": secret_leaks.printable_path,
}


@pytest.mark.parametrize("kind", UNSEEN)
@pytest.mark.parametrize("where", SHOWN)
def test_nothing_that_cannot_be_seen_is_shown_anywhere(where: str, kind: str) -> None:
    if where == "a file's name" and "\ud800" in UNSEEN[kind]:
        return  # the system gives none
    shown = SHOWN[where](f"plain{UNSEEN[kind]} words")
    assert "plain" in shown
    assert "words" in shown
    assert not set(UNSEEN[kind]) - {"\u200b"} & set(shown), ascii(shown)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x1b[2Jb\x1b]0;title\x07c\x1bPdevice\x1b\\d\n\te\x08", "abcd\n\te"),
        ("a\x1b]no end\nb\x1bPc", "ano end\nbc"),
        ("a\r\nb\rc\u2028d\u2029e", "a\nb\nc\nd\ne"),
        ("a\u00a0b\u3000c\x0bd", "a b c d"),
        ("naïve 日本語 😀 e\u0301", "naïve 日本語 😀 e\u0301"),
    ],
)
def test_what_is_seen_stays_and_words_stay_apart(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_what_a_program_wrote_keeps_every_character_that_moves_no_cursor() -> None:
    """A model that is to change a file has to know its exact characters."""
    assert without_control("\x1b[31ma\x1b[0m\u00a0\u200db\ufe0f\x07\r\n") == "a\u00a0\u200db\ufe0f\r\n"


@given(st.text())
def test_visible_text_stays_as_it_is(text: str) -> None:
    assert "\x1b" not in visible(text)
    assert visible(visible(text)) == visible(text)
    assert "\n" not in one_line(text)
    assert len(one_line(text, 10)) <= 10


@given(st.text(), st.integers(40, 60))
def test_a_cut_text_is_within_its_limit_and_keeps_both_its_ends(text: str, limit: int) -> None:
    text = f"begin {text * 3} end"
    cut = cut_middle(text, limit, "…", head_share=0.5)
    assert len(cut) <= limit
    assert (cut == text) == (len(text) <= limit)
    assert cut.startswith("begin")
    assert cut.endswith("end")
    assert len(shorten(text, limit)) <= limit
    assert len(cut_bytes(text, limit).encode()) <= limit


def test_a_gap_says_how_much_is_left_out() -> None:
    cut = cut_middle("a" * 100 + "b" * 100, 80)
    head, gap, tail = cut.split("\n")
    assert gap == f"[… {200 - len(head) - len(tail)} characters left out …]"


def test_of_two_secrets_the_longer_one_is_replaced_first() -> None:
    assert redact_values("abc-def abc", ["abc", "abc-def", ""], "*") == "* *"


@given(st.text(min_size=9, max_size=40), st.binary(max_size=5), st.binary(max_size=5))
def test_a_secret_is_replaced_as_which_it_is_written(secret: str, before: bytes, after: bytes) -> None:
    data = secret.encode("utf-8", "surrogatepass")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(before + data + after).decode()
        assert "*" in redact_values(text, [secret], "*")
        assert len(redact_values(text, [secret], "*")) <= len(text) - len(data)
    for text in (secret, quote(data, safe=""), quote(data), json.dumps(secret)[1:-1]):
        assert redact_values(f"<{text}>", [secret], "*").strip("<>").replace("*", "") == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (8.2, "8.2 s"), (9.97, "10 s"), (59.4, "59 s"), (59.6, "1m 00s"), (188, "3m 08s"), (7500, "2h 05m")],
)
def test_time_reads_as_people_say_it(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_amounts_read_as_people_say_them() -> None:
    assert (format_money(None), format_money(0), format_money(0.001), format_money(1234.5)) == (
        "cost unknown",
        "$0.00",
        "<$0.01",
        "$1,234.50",
    )
    assert (format_money(0.43, 5), format_money(0.001, 0.5)) == ("$0.43 of $5.00", "<$0.01 of $0.50")
    assert (format_money(0.0123, digits=4), format_money(0.00001, digits=4)) == ("$0.0123", "<$0.0001"), (
        "the price of one turn"
    )
    assert (format_tokens(950), format_tokens(118_200), format_tokens(999_600)) == ("950", "118k", "1.0M")
    assert (format_count(1, "turn"), format_count(2, "reply", "replies")) == ("1 turn", "2 replies")

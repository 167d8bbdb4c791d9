"""Words of a model or a stranger stay words: they call nobody, close nothing, lead nowhere, and hide nothing."""

from __future__ import annotations

import re

import pytest
from body_fixtures import PIECES, shapes, shown
from hypothesis import given

from perdure.adapters.forges.body import marker
from perdure.adapters.forges.markdown import code_span, neutral_line, neutral_text, neutral_title, quote_block


def check_harmless(safe: str) -> None:
    for words in (safe, shown(safe)):
        assert not re.search(r"[@\uff20\ufe6b][\w.-]", words)
        assert not re.search(r"(?i)[#\uff03]\d|\bgh-\d|\w://|\bwww\.", words)
    assert not {"link_open", "image", "html_inline", "html_block"} & set(shapes(safe))
    assert all(c in "\n\u200b" or c.isprintable() for c in safe)


@given(PIECES)
def test_no_mention_no_closing_word_no_markup_and_no_control_character_survives(text: str) -> None:
    check_harmless(neutral_text(text))
    check_harmless(quote_block(text))
    check_harmless(f"- {neutral_line(text)}")
    assert not re.search(r"(?m)^\s*/\w", neutral_text(text))
    assert all(shown.startswith("> ") for shown in quote_block(text).splitlines())


@given(PIECES)
def test_a_line_is_one_whatever_it_holds(text: str) -> None:
    once = shapes(f"- {neutral_line(text)}\n- ours\n\n### Ours")
    assert once[:2] == ["bullet_list_open", "list_item_open"]
    assert once.count("list_item_open") == 2
    assert once.count("heading_open") == 1
    assert not {"fence", "code_block", "blockquote_open", "hr", "ordered_list_open"} & set(once)


def test_words_stay_apart_where_a_tab_stood_between_them() -> None:
    assert neutral_text("a\tb\u00a0c\x07") == "a b c"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("if a < b and c: d[0] * e", "if a < b and c: d[0] * e"),
        ("use `x` and **y**, AT&T, C#, a/b, 50% @ 3", "use `x` and **y**, AT&|T, C#, a/b, 50% @ 3"),
        ("Fixes ABC-12, for UTF-8", "Fixes ABC|-12, for UTF-8"),
        ("[a]: /x\n[a][b] [a](/x)", "[a]|: /x\n[a]|[b] [a]|(/x)"),
        ("> [!NOTE]\n[^1]", "> [|!NOTE]\n[|^1]"),
        ("gh\\-7 #\\7 https\\:\\/\\/x ftp://x www\\.x", "gh|\\-7 #|\\7 https\\:|\\/\\/x ftp:|//x www|\\.x"),
        ("\uff20ada, \ufe6bada, @-x", "\uff20|ada, \ufe6b|ada, @|-x"),
        ("<!-- x --> <?x> </b> <b>", "<|!-- x --> <|?x> <|/b> <|b>"),
        ("see /etc\n/approve", "see /etc\n|/approve"),
        ("warn\u034fing \u26a0\ufe0f \U000e0041", "warning \u26a0 "),
        ("```mermaid\ngraph", "```|mermaid\ngraph"),
    ],
)
def test_what_does_no_harm_stays_as_it_was(text: str, safe: str) -> None:
    assert neutral_text(text) == safe.replace("|", "\u200b")


def test_a_name_cannot_end_its_code_span_and_a_title_keeps_its_brackets() -> None:
    assert code_span("a`b\n<i>") == "`ab <i>`"
    assert code_span(" `") == ""
    assert marker("d") not in code_span(marker("d"))
    assert neutral_title("list[int](x) <b> & @ada") == "list[int](x) <b> & @\u200bada"
    assert neutral_line("x" * 30, 10) == "x" * 9 + "…"
    assert neutral_line("\u202e\n# no heading") == "\u200b# no heading"

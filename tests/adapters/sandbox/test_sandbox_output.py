"""What people and models see of a command's output."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.system.output import clean_output, read_excerpt


def test_a_short_output_is_shown_whole(tmp_path):
    (tmp_path / "out").write_text("one\ntwo\n")
    assert read_excerpt(tmp_path / "out", 10, 10) == "one\ntwo\n"
    assert read_excerpt(tmp_path / "absent", 10, 10) == ""


def test_of_a_long_output_head_and_tail_are_shown_with_what_lies_between(tmp_path):
    (tmp_path / "out").write_text("a" * 500 + "b" * 500)
    assert read_excerpt(tmp_path / "out", 5, 3) == "aaaaa\n[… 992 bytes left out …]\nbbb"
    (tmp_path / "out").write_text("a" * 10 + "b" * 10)
    assert read_excerpt(tmp_path / "out", 5, 3) == "aaaaa\n[… 12 bytes left out …]\nbbb"


def test_characters_of_several_bytes_are_not_cut_in_two(tmp_path):
    (tmp_path / "out").write_text("€" * 1001)
    text = read_excerpt(tmp_path / "out", 7, 7)
    assert text.startswith("€€€€€€€\n[… ")
    assert text.endswith("\n€€€€€€€")
    assert "\ufffd" not in text


def test_bytes_that_are_no_text_are_replaced(tmp_path):
    (tmp_path / "out").write_bytes(b"ok \xff\xfe end")
    assert read_excerpt(tmp_path / "out", 50, 50) == "ok \ufffd\ufffd end"


def test_terminal_control_sequences_are_removed():
    assert (
        clean_output("\x1b[31mred\x1b[0m \x1b]0;title\x07x \x1b]8;;http://e\x1b\\link \x1b(B\x00\x9b1m")
        == "red x link 1m"
    )
    assert clean_output("10%\r50%\r100%\ndone\r\n") == "100%\ndone\n"


def test_a_huge_file_is_read_in_bounded_memory(tmp_path):
    with open(tmp_path / "out", "wb") as file:
        file.truncate(200_000_000)
    tracemalloc.start()
    read_excerpt(tmp_path / "out", 1000, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


@given(st.binary(max_size=300), st.integers(0, 40), st.integers(0, 40))
def test_an_excerpt_is_never_much_longer_than_asked_for(tmp_path_factory, data, head, tail):
    path = tmp_path_factory.getbasetemp() / "excerpt"
    path.write_bytes(data)
    text = read_excerpt(path, head, tail)
    assert len(text) <= head + tail + len("\n[… 300 bytes left out …]\n")
    assert "\x1b" not in text

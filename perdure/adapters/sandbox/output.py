"""Excerpts of what a command wrote: head and tail in bounded memory, made safe for a terminal and a model."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

from perdure.text import without_control


def read_excerpt(path: Path, head: int, tail: int) -> str:
    """Read a file and return its text; of a long one its first `head` and last `tail` characters, and between them a
    line that says how many bytes are left out.

    Undecodable bytes become U+FFFD, terminal control sequences are removed. An absent file gives ''. Only the two ends
    of a long file are read.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            most_bytes = 4 * (head + tail)  # no character of UTF-8 is longer
            if size <= most_bytes:
                text = clean_output(file.read().decode(errors="replace"))
                if len(text) <= head + tail:
                    return text
                first, last = text[:head], text[len(text) - tail :]
                left_out = size - len(first.encode()) - len(last.encode())
                return _join_excerpt(first, max(1, left_out), last)
            start = codecs.getincrementaldecoder("utf-8")("replace").decode(file.read(4 * head))
            file.seek(size - 4 * tail)
            end = file.read().lstrip(bytes(range(0x80, 0xC0))).decode(errors="replace")
    except FileNotFoundError:
        return ""
    first, last = clean_output(start)[:head], clean_output(end)
    last = last[max(0, len(last) - tail) :]
    return _join_excerpt(first, max(1, size - len(first.encode()) - len(last.encode())), last)


def clean_output(text: str) -> str:
    """Return the text without control sequences; of a line that was overwritten, as by a progress bar, only the last
    state."""
    lines = text.replace("\r\n", "\n").split("\n")
    return without_control("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))


def _join_excerpt(first: str, left_out: int, last: str) -> str:
    """Return the two parts with a line between them that says how many bytes were left out."""
    return f"{first}\n[… {left_out:,} bytes left out …]\n{last}"

"""Reading what a command wrote: head and tail in bounded memory, made safe for a terminal and a model."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

from perdure.text import without_control


def excerpt(path: Path, head: int, tail: int) -> str:
    """The file's text, or its first `head` and last `tail` characters and how many bytes lie between them.

    Undecodable bytes become U+FFFD, terminal control sequences are removed. An absent file is ''.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            most = 4 * (head + tail)  # no character of UTF-8 is longer
            if size <= most:
                text = clean(file.read().decode(errors="replace"))
                if len(text) <= head + tail:
                    return text
                first, last = text[:head], text[len(text) - tail :]
                left_out = size - len(first.encode()) - len(last.encode())
                return _join(first, max(1, left_out), last)
            start = codecs.getincrementaldecoder("utf-8")("replace").decode(file.read(4 * head))
            file.seek(size - 4 * tail)
            end = file.read().lstrip(bytes(range(0x80, 0xC0))).decode(errors="replace")
    except FileNotFoundError:
        return ""
    first, last = clean(start)[:head], clean(end)
    last = last[max(0, len(last) - tail) :]
    return _join(first, max(1, size - len(first.encode()) - len(last.encode())), last)


def clean(text: str) -> str:
    """Without control sequences; of a line that was overwritten, as by a progress bar, the last state."""
    lines = text.replace("\r\n", "\n").split("\n")
    return without_control("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))


def _join(first: str, left_out: int, last: str) -> str:
    return f"{first}\n[… {left_out:,} bytes left out …]\n{last}"

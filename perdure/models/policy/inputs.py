"""The most that is parsed of texts that strangers write: each is checked before a parser sees it."""

from __future__ import annotations

CONFIG_BYTES = 64 * 1024
"""Of a perdure.toml or a user file, as much as a request can bring along: the longest known has 4 KiB."""

PROJECT_FILE_BYTES = 1024 * 1024
"""Of a pyproject.toml, Cargo.toml or package.json that is looked into; a larger one was made to be large."""

SCREENPLAY_BYTES = 8 * 1024 * 1024
"""Of a screenplay: a recorded delivery holds whole files."""

BLANKED_CHARS = 64 * 1024
"""Of the keys that a repository's own configuration names programs by: each goes into git's environment, which holds no
more than 128 KiB in one piece. A checkout with git-lfs has three."""

LINE_DOTS = 500
"""In one line of TOML: the parser's work grows with the square of a dotted key's parts (100 KB: 32 s and 3 GB)."""

NESTING = 40
"""Tables and lists within each other: every reader of them is recursive. A setting has four."""

INTEGER_BITS = 64
"""Of a number, as TOML promises: a longer one cannot even be shown in a message."""

PLACE_CHARS_TRIED = 1024 * 1024
"""Read again to find a key's line for an error message, a quarter of a second; else the nearest known one is named."""

SETTING_CHARS = 8 * 1024
"""Of one text in a settings file: a command line, the longest of them, has a few hundred."""

DURATION_CHARS = 32
DURATION_MOST_S = 10 * 366 * 24 * 3600.0
"""Of a duration as it is written, and how long one may be: ten years, which the server's timers can still hold."""

RESUME_BYTES = 512 * 1024
"""Of what a retry sends back: the whole state of a delivery of a thousand turns has a fifth of it."""

PARTS_MOST = 50
"""Directories of a monorepo that are looked at for a toolchain of their own: each is some file names and a manifest."""

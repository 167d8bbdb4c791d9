"""Findings about secrets: in what the change adds, and in earlier commits that would be published along with it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from perdure.adapters.checks.findings.detectors import addresses, detectors, may_have_address
from perdure.adapters.git import patch
from perdure.adapters.git.command import GitError
from perdure.adapters.git.patch import FILES, LINK, ChangedPath, Hunk, PatchLine
from perdure.adapters.git.repository import Repository
from perdure.models.contract import Contract
from perdure.models.limits import FINDING_BINARY_BYTES
from perdure.models.report import Finding, FindingRule, Severity
from perdure.text import is_visible

SECRET_KEY_LINES = 8
"""Behind the first line of a private key, until its first line of content: headers of encrypted ones have four."""


_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d: ")
_KEY_WORDS = ("PRIVATE KEY", "PuTTY-User-Key-File")
_CONTENT = re.compile(r"[A-Za-z0-9+/=]{40,}")
_KEY_VARIETY = 12
"""Different characters in 40 of base64; real keys have runs of A in them, so that runs say nothing here."""

_NAMED_EXAMPLE = re.compile(r"(?i)(?:^|[._-])(?:examples?|samples?|dummy|fake)(?:[._-]|$)")
_FOR_TESTS = re.compile(
    r"(?i)(?:^|/)(?:[^/]*[._-])?(?:tests?|specs?|fixtures?|testdata|__tests__)(?:[._-][^/]*)?(?:/|$)"
)


@dataclass(frozen=True)
class Leak:
    """A secret in an added line (from 1; None: in a file without lines).

    blocks  it must not be published; otherwise a person has to look
    """

    kind: str
    line: int | None
    value: str = field(repr=False)
    blocks: bool = True


def in_hunks(path: str, hunks: Iterable[Hunk]) -> Iterator[Leak]:
    """Secrets that the change adds to a text file."""
    for hunk in hunks:
        yield from _in_lines(path, hunk.body, hunk.new_lines)


def in_bytes(path: str, data: bytes) -> Iterator[Leak]:
    """Secrets in a file that is no text to git: such as UTF-16, or a program with a token inside."""
    for leak in _in_data(path, data.replace(b"\0", b"")):
        yield Leak(leak.kind, None, leak.value, leak.blocks)


def in_text(text: str) -> Iterator[Leak]:
    """Secrets in words that are not a file's: a path, a commit message."""
    yield from _in_data("", text.encode("utf-8", "surrogateescape"))


def _in_data(path: str, data: bytes) -> Iterator[Leak]:
    lines = (PatchLine(number, True, line) for number, line in enumerate(data.split(b"\n"), 1))
    yield from _in_lines(path, data, lambda: lines)


def _in_lines(path: str, data: bytes, lines: Callable[[], Iterator[PatchLine]]) -> Iterator[Leak]:
    """`data`: all the lines, for a look at what is worth looking for: in most hunks it is nothing."""
    whole = data.decode("utf-8", "replace")
    example = _named_example(path)
    tested = example or _FOR_TESTS.search(path) is not None
    chosen = [one for one in detectors() if (one.certain or not tested) and one.possible(whole)]
    passwords = not tested and may_have_address(whole)
    keys = _Keys() if any(word in whole for word in _KEY_WORDS) else None
    if not (chosen or passwords or keys):
        return
    for line in lines():
        text = line.data.decode("utf-8", "replace")
        if line.added:
            for one in chosen:
                yield from (Leak(one.kind, line.number, value, one.blocks) for value in one.values(text))
            if passwords:
                yield from (Leak("a password in an address", line.number, value) for value in addresses(text))
        if keys is not None and (found := keys.read(line, text)) is not None:
            yield Leak("a private key", found[0], found[1], blocks=not example)


class _Keys:
    """Reads lines in their order and says where a private key begins, once its content is seen and any of it is new."""

    def __init__(self) -> None:
        self._header: PatchLine | None = None
        self._left = 0

    def read(self, line: PatchLine, text: str) -> tuple[int, str] | None:
        """(the line of its header, its first line of content); a header without content stands in guides."""
        if (header := _KEY.search(text)) is not None:
            self._header, self._left, text = line, SECRET_KEY_LINES + 1, text[header.end() :]
        begun = self._header
        if begun is None:
            return None
        self._left -= 1
        found = _CONTENT.search(text)
        if found is None:
            self._header = None if "-----END" in text or not self._left else begun
            return None
        self._header = None
        real = len(set(found[0])) >= _KEY_VARIETY and (line.added or begun.added)
        return (begun.number, found[0]) if real else None


def _named_example(path: str) -> bool:
    return _NAMED_EXAMPLE.search(path.rpartition("/")[2]) is not None or (
        _FOR_TESTS.search(path) is not None and any(map(_NAMED_EXAMPLE.search, path.split("/")))
    )


SECRET_VALUES = 200
SECRET_LEAKS = 5_000
"""Different secrets that are searched for in the base, where they may have been before; more are taken for new. And the
most that are noted: a change with that many is not published."""

SECRET_COMMITS = 100
"""Commits of a delivery that are searched beside its last one: each attempt makes one, and there are twenty at most."""


_MEND = (
    "Take it out and read it from the environment or a secret store; revoke it if it is real. A value made up for a "
    "test or a guide has EXAMPLE in it; a key for tests is made by the test, or its file is named example."
)
_ANEW = "The files are right already and stay as they are; the next fix is committed in the place of all so far."


@dataclass(frozen=True)
class _Place:
    """The place of a leak: a path, or a commit that is not the last one, or the words of one."""

    leak: Leak = field(repr=False)
    path: str = ""
    commit: str = ""
    message: bool = False


def leaked(
    repository: Repository, contract: Contract, base: str, head: str, changed: Sequence[ChangedPath], binaries: set[str]
) -> tuple[list[Finding], set[str]]:
    """(findings, the secrets themselves, which nothing may hold). What the base holds already is not new."""
    places = list(islice(_places(repository, contract, base, head, changed, binaries), SECRET_LEAKS))
    values = dict.fromkeys(place.leak.value for place in places)
    new = set(values) - _held(repository, base, list(values)[:SECRET_VALUES])
    told: dict[tuple[str, str, int | None, str], Finding] = {}
    seen: set[str] = set()
    for place in places:
        leak = place.leak
        if leak.value not in new or (leak.value in seen and (place.commit or place.message)):
            continue  # what is in the files has to go first, and its commits with it
        seen.add(leak.value)
        told.setdefault((leak.kind, place.path, leak.line, place.commit), _finding(place))
    return list(told.values()), new


def _places(
    repository: Repository, contract: Contract, base: str, head: str, changed: Sequence[ChangedPath], binaries: set[str]
) -> Iterator[_Place]:
    for path, leak in _leaks(repository, base, head, changed, binaries):
        yield _Place(leak, path)
    begun = contract.head or base
    for commit in _earlier(repository, begun, base, head):
        before = f"{commit}^1"
        entries = patch.changed_paths(repository, before, commit)
        for path, leak in _leaks(repository, before, commit, entries, patch.binary_paths(repository, before, commit)):
            yield _Place(leak, path, commit)
    written = repository.git.execute("log", "--format=%B", "--end-of-options", head, f"^{begun}", f"^{base}").stdout
    for leak in in_text(written.decode("utf-8", "replace")):
        yield _Place(leak, message=True)


def _leaks(
    repository: Repository, a: str, b: str, changed: Sequence[ChangedPath], binaries: set[str]
) -> Iterator[tuple[str, Leak]]:
    files = [one for one in changed if one.mode in (*FILES, LINK) and one.sha != one.was_sha]
    for path, hunks in patch.read_hunks(repository, a, b, [one for one in files if one.path not in binaries]):
        yield from ((path, leak) for leak in in_hunks(path, hunks))
    opaque = [one for one in files if one.path in binaries and one.size <= FINDING_BINARY_BYTES]
    for one, data in patch.read_blobs(repository, opaque):
        yield from ((one.path, leak) for leak in in_bytes(one.path, data))
    for one in changed:
        if one.exists and not one.was_mode.strip("0"):
            yield from ((one.path, Leak(leak.kind, None, leak.value, leak.blocks)) for leak in in_text(one.path))


def _earlier(repository: Repository, begun: str, base: str, head: str) -> Iterable[str]:
    """Commits of this delivery before the last one; those of a branch that was there before are published already."""
    listed = repository.git.text("rev-list", "--first-parent", "--end-of-options", head, f"^{begun}", f"^{base}")
    return reversed(listed.splitlines()[1 : SECRET_COMMITS + 1])


def _held(repository: Repository, base: str, values: Sequence[str]) -> set[str]:
    """Return those the base's files hold: only moved or reformatted. Given on stdin, where nobody looks."""
    if not values:
        return set()
    asked = ("grep", "-h", "-o", "--text", "--fixed-strings", "-f", "-", base)
    try:
        found = repository.git.execute(*asked, stdin="\n".join(values).encode() + b"\n", ok=(0, 1)).stdout
    except GitError:  # it took too long: what was not found counts as new
        return set()
    return set(found.decode("utf-8", "replace").split("\n"))


def _finding(place: _Place) -> Finding:
    leak, published = place.leak, bool(place.commit or place.message)
    where = " in an earlier commit" if place.commit else " in a commit message" if place.message else ""
    if place.commit:
        words = f"Commit {place.commit[:12]} has it, and a later one takes it out: it would be published all the same."
    elif leak.blocks:
        words = "It is not shown here, and nothing is pushed that has it."
    else:
        words = "It is not shown here. If everybody is meant to see it, it can stay."
    return Finding(
        rule=FindingRule.SECRET,
        severity=Severity.BLOCKER if leak.blocks else Severity.TECH_DEBT,
        title=f"{leak.kind}{where}",
        description=words,
        file=shown(place.path),
        line=None if published else leak.line,
        suggestion=_ANEW if published else _MEND,
    )


FINDING_NAME_CHARS = 200
"""Of a path in a finding: names may have 4096 bytes."""


def shown(path: str) -> str:
    """A path of the file system as text on one line; what cannot be printed is escaped, a long one loses its middle."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    plain = "".join(c if is_visible(c) else c.encode("unicode_escape").decode() for c in text)
    if len(plain) <= FINDING_NAME_CHARS:
        return plain
    half = FINDING_NAME_CHARS // 2
    return f"{plain[:half]}…{plain[-half + 1 :]}"

"""Find secrets that a change would publish, in what it adds, in the delivery's earlier commits and in their messages,
and make the findings, for `engine_findings`. The detectors are the providers' formats of detect-secrets, and a few that
it does not know. Nothing is sent anywhere. Also makes a path printable on one line, for all findings and for agents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, pairwise

from perdure.adapters.git import patch
from perdure.adapters.git.command import GitError
from perdure.adapters.git.patch import FILES, LINK, ChangedPath
from perdure.adapters.git.repository import Repository
from perdure.models.checks.report import Finding, FindingRule, Severity
from perdure.models.delivery.turn import Contract
from perdure.models.limits import FINDING_BINARY_BYTES
from perdure.models.patch import Hunk, PatchLine
from perdure.text import cut_middle, escape_path

SECRET_LINE_CHARS, SECRET_LINE_OVERLAP = 1_000, 300
"""Longer lines are searched in pieces that overlap: some patterns take the square of a line's length. No token is
longer than the overlap."""


@dataclass(frozen=True)
class SecretDetector:
    """A detector of one kind of secret.

    kind      with its article, for people
    needles   one of them is in every text that holds such a secret: a cheap look before the patterns; with none, the
              patterns are cheap enough themselves
    patterns  the secret is the last long group of a match, or the whole of it
    certain   nothing but a secret has this format, wherever it stands; otherwise tests and examples may hold one
    blocks    it must not be published; some keys are meant to be seen, and a person has to say so
    """

    kind: str
    needles: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    certain: bool = True
    blocks: bool = True

    def may_match(self, text: str) -> bool:
        """Return whether a text could hold such a secret."""
        if not self.needles:
            return any(pattern.search(text) for pattern in self.patterns)
        return any(needle in text for needle in self.needles)

    def find_secrets(self, line: str) -> Iterator[str]:
        """Yield every secret of this kind in a line, but for values that are plainly made up. Of a long line each piece
        that overlaps with the one before is searched, so that a secret may come twice."""
        if not self.may_match(line):
            return
        for piece in _split_line(line):
            for pattern in self.patterns:
                for match in pattern.finditer(piece):
                    groups = [group for group in match.groups() if group and len(group) >= _GROUP_CHARS]
                    value = groups[-1] if groups else match[0]
                    if not is_made_up(value):
                        yield value


_GROUP_CHARS = 16
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://([^\s:/?#\[\]@'\"<>]{1,100}):([^\s:/?#\[\]@'\"<>]{6,200})@([\w.-]+)")
_WEAK = re.compile(
    r"(?i)(?:(?:my|your|the|a)?[_-]?(?:pass(?:word|wd)?|pwd|secret|token|root|admin|user|guest|test|postgres)\d*)+"
)
_LOCAL = re.compile(
    r"(?i)(?:[^.]+|127\.[\d.]+|0\.0\.0\.0|10\.[\d.]+|(?:.+\.)?(?:example|test|invalid|local|localhost|internal"
    r"|example\.(?:com|org|net)))"
)
_MADE_UP = re.compile(
    r"(?i)example|placeholder|dummy|change.?me|replace.?me|your[_-]|redacted|sample|xxxx|\*\*\*\*|\.\.\.|…|[<>{}$%]"
)


def all_detectors() -> tuple[SecretDetector, ...]:
    """Return the detectors that are used; none for high entropy or words such as `password =`, which would cry wolf."""
    return _load_detectors()


def find_passwords(line: str) -> Iterator[str]:
    """Yield the passwords in addresses (`scheme://user:password@host`). Left out: weak or made-up ones, one that is the
    user's name, and those for hosts that are this machine, private or an example."""
    if not may_have_address(line):
        return
    for piece in _split_line(line):
        for match in _ADDRESS.finditer(piece):
            user, password, host = match.groups()
            harmless = _WEAK.fullmatch(password) or _LOCAL.fullmatch(host) or _MADE_UP.search(password)
            if password != user and not harmless:
                yield password


def may_have_address(text: str) -> bool:
    """Return whether a text could hold an address with a password: a cheap look before the pattern."""
    return "://" in text and "@" in text


def is_made_up(value: str) -> bool:
    """Return whether a value is plainly no secret: it has a word such as `example` or a mark such as `$` or `…` in it,
    few different characters, or a run of eight such as `12345678` or `aaaaaaaa`."""
    if _MADE_UP.search(value):
        return True
    core = value.rpartition("_")[2] if value.rpartition("_")[2][_GROUP_CHARS - 1 :] else value
    if len(set(core)) < (10 if len(core) >= 30 else 8):
        return True
    return _longest_run(core) >= 8


def _longest_run(value: str) -> int:
    """Return the length of the longest run of characters that each follow, or repeat, the one before."""
    longest = rising = equal = 1
    for before, after in pairwise(value):
        rising = rising + 1 if ord(after) == ord(before) + 1 else 1
        equal = equal + 1 if after == before else 1
        longest = max(longest, rising, equal)
    return longest


def _split_line(line: str) -> Iterable[str]:
    """Split a line into pieces of SECRET_LINE_CHARS that overlap by SECRET_LINE_OVERLAP."""
    if len(line) <= SECRET_LINE_CHARS:
        return (line,)
    step = SECRET_LINE_CHARS - SECRET_LINE_OVERLAP
    return (line[start : start + SECRET_LINE_CHARS] for start in range(0, len(line) - SECRET_LINE_OVERLAP, step))


@cache
def _load_detectors() -> tuple[SecretDetector, ...]:
    """Return the detectors, made once. Their library is imported only here: it brings an HTTP client along, for a
    verification that is never used."""
    from detect_secrets.plugins.aws import AWSKeyDetector
    from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
    from detect_secrets.plugins.base import RegexBasedDetector
    from detect_secrets.plugins.github_token import GitHubTokenDetector
    from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
    from detect_secrets.plugins.mailchimp import MailchimpDetector
    from detect_secrets.plugins.npm import NpmDetector
    from detect_secrets.plugins.openai import OpenAIDetector
    from detect_secrets.plugins.pypi_token import PypiTokenDetector
    from detect_secrets.plugins.sendgrid import SendGridDetector
    from detect_secrets.plugins.slack import SlackDetector
    from detect_secrets.plugins.square_oauth import SquareOAuthDetector
    from detect_secrets.plugins.stripe import StripeDetector

    def from_plugin(kind: str, plugin: type[RegexBasedDetector], *needles: str) -> SecretDetector:
        return SecretDetector(kind, needles, tuple(plugin().denylist))

    def from_pattern(
        kind: str, needle: str, pattern: str, *, certain: bool = True, blocks: bool = True
    ) -> SecretDetector:
        return SecretDetector(kind, (needle,) if needle else (), (re.compile(pattern),), certain, blocks)

    return (
        from_plugin("an AWS key", AWSKeyDetector, "A3T", "ABIA", "ACCA", "AKIA", "ASIA", "aws", "AWS", "Aws"),
        from_plugin("an Azure storage key", AzureStorageKeyDetector, "AccountKey="),
        from_plugin("a GitHub token", GitHubTokenDetector, "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
        from_plugin("a GitLab token", GitLabTokenDetector, "gl", "GR1348941"),
        from_plugin("a Mailchimp key", MailchimpDetector, "-us"),
        from_plugin("an npm token", NpmDetector, ":_authToken="),
        from_plugin("an OpenAI key", OpenAIDetector, "T3BlbkFJ"),
        from_plugin("a PyPI token", PypiTokenDetector, "pypi-"),
        from_plugin("a SendGrid key", SendGridDetector, "SG."),
        from_plugin("a Slack token", SlackDetector, "xox", "XOX", "hooks.slack.com"),
        from_plugin("a Square secret", SquareOAuthDetector, "sq0csp-"),
        from_plugin("a Stripe key", StripeDetector, "_live_"),
        from_pattern("a GitHub token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{60,100}\b"),
        from_pattern("an Anthropic key", "sk-ant-", r"\bsk-ant-[a-z0-9]+-[A-Za-z0-9_-]{60,150}"),
        from_pattern("a Google API key", "AIza", r"\bAIza[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])", blocks=False),
        from_pattern("a Google OAuth secret", "GOCSPX-", r"\bGOCSPX-[0-9A-Za-z_-]{28}"),
        from_pattern("a Hugging Face token", "hf_", r"\bhf_[A-Za-z]{34}\b"),
        from_pattern(
            "a Discord bot token", "", r"\b[MNO](?=[\w-]*\d)[\w-]{23,25}\.[\w-]{6}\.(?=[\w-]*\d)[\w-]{27,38}\b"
        ),
        from_pattern("a Twilio key", "SK", r"\bSK[0-9a-f]{32}\b"),
        from_pattern("a DigitalOcean token", "dop_v1_", r"\bdop_v1_[0-9a-f]{64}\b"),
        from_pattern(
            "a JSON Web Token", "eyJ", r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}", certain=False, blocks=False
        ),
    )


SECRET_KEY_LINES = 8
"""Lines behind the first line of a private key within which its content begins: headers of encrypted ones have four."""


_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d: ")
_KEY_NEEDLES = ("PRIVATE KEY", "PuTTY-User-Key-File")
_CONTENT = re.compile(r"[A-Za-z0-9+/=]{40,}")
_KEY_VARIETY = 12
"""Different characters in 40 of base64; real keys have runs of A in them, so that runs say nothing here."""

_NAMED_EXAMPLE = re.compile(r"(?i)(?:^|[._-])(?:examples?|samples?|dummy|fake)(?:[._-]|$)")
_FOR_TESTS = re.compile(
    r"(?i)(?:^|/)(?:[^/]*[._-])?(?:tests?|specs?|fixtures?|testdata|__tests__)(?:[._-][^/]*)?(?:/|$)"
)


@dataclass(frozen=True)
class SecretLeak:
    """A secret in an added line (`line` from 1; None: in a file without lines).

    blocks  it must not be published; otherwise a person has to look
    """

    kind: str
    line: int | None
    value: str = field(repr=False)
    blocks: bool = True


def leaks_in_hunks(path: str, hunks: Iterable[Hunk]) -> Iterator[SecretLeak]:
    """Yield the secrets that the change adds to a text file."""
    for hunk in hunks:
        yield from _leaks_in_lines(path, hunk.body, hunk.new_lines)


def leaks_in_bytes(path: str, data: bytes) -> Iterator[SecretLeak]:
    """Yield the secrets in a file that is no text to git, such as UTF-16, or a program with a token inside."""
    for leak in _leaks_in_data(path, data.replace(b"\0", b"")):
        yield SecretLeak(leak.kind, None, leak.value, leak.blocks)


def leaks_in_text(text: str) -> Iterator[SecretLeak]:
    """Yield the secrets in text outside of files: a path, a commit message."""
    yield from _leaks_in_data("", text.encode("utf-8", "surrogateescape"))


def _leaks_in_data(path: str, data: bytes) -> Iterator[SecretLeak]:
    """Yield the secrets in data, each line of which counts as added."""
    lines = (PatchLine(number, True, line) for number, line in enumerate(data.split(b"\n"), 1))
    yield from _leaks_in_lines(path, data, lambda: lines)


def _leaks_in_lines(path: str, data: bytes, lines: Callable[[], Iterator[PatchLine]]) -> Iterator[SecretLeak]:
    """Yield the secrets in a file's added lines: tokens, passwords in addresses, and private keys.

    path   where a file is for tests or an example, only tokens whose format is certain count; a private key in a file
           that is named an example does not block
    data   all the lines, for a look at what is worth searching for: in most hunks it is nothing
    lines  gives them one by one; called only where there is something to search for
    """
    whole = data.decode("utf-8", "replace")
    is_example = _named_example(path)
    may_be_example = is_example or _FOR_TESTS.search(path) is not None
    chosen = [
        detector
        for detector in all_detectors()
        if (detector.certain or not may_be_example) and detector.may_match(whole)
    ]
    passwords = not may_be_example and may_have_address(whole)
    keys = _PrivateKeyReader() if any(word in whole for word in _KEY_NEEDLES) else None
    if not (chosen or passwords or keys):
        return
    for line in lines():
        text = line.data.decode("utf-8", "replace")
        if line.added:
            for detector in chosen:
                yield from (
                    SecretLeak(detector.kind, line.number, value, detector.blocks)
                    for value in detector.find_secrets(text)
                )
            if passwords:
                yield from (
                    SecretLeak("a password in an address", line.number, value) for value in find_passwords(text)
                )
        if keys is not None and (key_start := keys.read_line(line, text)) is not None:
            yield SecretLeak("a private key", key_start[0], key_start[1], blocks=not is_example)


class _PrivateKeyReader:
    """A reader of lines in their order that tells where a private key begins, once its content is read and any of it is
    new."""

    def __init__(self) -> None:
        self._header: PatchLine | None = None
        self._lines_left = 0

    def read_line(self, line: PatchLine, text: str) -> tuple[int, str] | None:
        """Read the next line, and return (number of the key's header line, content) where it is the first content of a
        private key; else None.

        None, too, where neither header nor content was added, or the content has few different characters. A header
        without content within SECRET_KEY_LINES is forgotten: such stand in guides.
        """
        if (header := _KEY.search(text)) is not None:
            self._header, self._lines_left, text = line, SECRET_KEY_LINES + 1, text[header.end() :]
        header_line = self._header
        if header_line is None:
            return None
        self._lines_left -= 1
        content = _CONTENT.search(text)
        if content is None:
            self._header = None if "-----END" in text or not self._lines_left else header_line
            return None
        self._header = None
        real = len(set(content[0])) >= _KEY_VARIETY and (line.added or header_line.added)
        return (header_line.number, content[0]) if real else None


def _named_example(path: str) -> bool:
    """Return whether a path says that the file is an example, by its name or, of files for tests, by a directory's."""
    return _NAMED_EXAMPLE.search(path.rpartition("/")[2]) is not None or (
        _FOR_TESTS.search(path) is not None and any(map(_NAMED_EXAMPLE.search, path.split("/")))
    )


SECRET_VALUES = 200
SECRET_LEAKS = 5_000
"""Different secrets that are searched for in the base, where they may have been before; more are taken for new. And the
most leaks that are recorded: a change with that many is not published."""

SECRET_COMMITS = 100
"""The most commits of a delivery that are searched beside its last one: each attempt makes one, and there are twenty at
most."""


_REMOVE_IT = (
    "Take it out and read it from the environment or a secret store; revoke it if it is real. A value made up for a "
    "test or a guide has EXAMPLE in it; a key for tests is made by the test, or its file is named example."
)
_NEXT_FIX_REPLACES = (
    "The files are right already and stay as they are; the next fix is committed in the place of all so far."
)


@dataclass(frozen=True)
class _LeakPlace:
    """The place of a leak: a path, in a commit before the last one where `commit` names it; or a commit's message."""

    leak: SecretLeak = field(repr=False)
    path: str = ""
    commit: str = ""
    message: bool = False


def find_leaks(
    repository: Repository, contract: Contract, base: str, head: str, changed: Sequence[ChangedPath], binaries: set[str]
) -> tuple[list[Finding], set[str]]:
    """Return findings about secrets that a change would publish, and the set of these secrets, which no result may
    hold.

    binaries  paths whose content is not text to git

    Secrets that the base's files hold already are left out; SECRET_VALUES of them are searched for there, and any
    beyond count as new. One in the change's files is not reported again for earlier commits and messages. At most
    SECRET_LEAKS places are looked at. Raises GitError when a commit is missing.
    """
    places = list(islice(_leak_places(repository, contract, base, head, changed, binaries), SECRET_LEAKS))
    values = dict.fromkeys(place.leak.value for place in places)
    new = set(values) - _values_in_base(repository, base, list(values)[:SECRET_VALUES])
    findings: dict[tuple[str, str, int | None, str], Finding] = {}
    reported: set[str] = set()
    for place in places:
        leak = place.leak
        if leak.value not in new or (leak.value in reported and (place.commit or place.message)):
            continue  # what is in the files has to go first, and its commits with it
        reported.add(leak.value)
        findings.setdefault((leak.kind, place.path, leak.line, place.commit), _make_finding(place))
    return list(findings.values()), new


def _leak_places(
    repository: Repository, contract: Contract, base: str, head: str, changed: Sequence[ChangedPath], binaries: set[str]
) -> Iterator[_LeakPlace]:
    """Yield each leak with its place: in the change as a whole, then in each earlier commit of the delivery, then in
    commit messages."""
    for path, leak in _leaks_between(repository, base, head, changed, binaries):
        yield _LeakPlace(leak, path)
    start = contract.head or base
    for commit in _earlier_commits(repository, start, base, head):
        before = f"{commit}^1"
        entries = patch.changed_paths(repository, before, commit)
        for path, leak in _leaks_between(
            repository, before, commit, entries, patch.binary_paths(repository, before, commit)
        ):
            yield _LeakPlace(leak, path, commit)
    messages = repository.git.execute("log", "--format=%B", "--end-of-options", head, f"^{start}", f"^{base}").stdout
    for leak in leaks_in_text(messages.decode("utf-8", "replace")):
        yield _LeakPlace(leak, message=True)


def _leaks_between(
    repository: Repository, a: str, b: str, changed: Sequence[ChangedPath], binaries: set[str]
) -> Iterator[tuple[str, SecretLeak]]:
    """Yield (path, leak) for what differs between commits `a` and `b`: lines of text files, other files up to
    FINDING_BINARY_BYTES, and names of new paths."""
    files = [change for change in changed if change.mode in (*FILES, LINK) and change.sha != change.was_sha]
    for path, hunks in patch.read_hunks(repository, a, b, [change for change in files if change.path not in binaries]):
        yield from ((path, leak) for leak in leaks_in_hunks(path, hunks))
    opaque = [change for change in files if change.path in binaries and change.size <= FINDING_BINARY_BYTES]
    for change, data in patch.read_blobs(repository, opaque):
        yield from ((change.path, leak) for leak in leaks_in_bytes(change.path, data))
    for change in changed:
        if change.exists and not change.was_mode.strip("0"):
            yield from (
                (change.path, SecretLeak(leak.kind, None, leak.value, leak.blocks))
                for leak in leaks_in_text(change.path)
            )


def _earlier_commits(repository: Repository, start: str, base: str, head: str) -> Iterable[str]:
    """Return the delivery's commits on the first-parent path before the last one, the oldest first; of more than
    SECRET_COMMITS the newest. Commits that `start` or `base` contains are left out: they are published already."""
    listed = repository.git.text("rev-list", "--first-parent", "--end-of-options", head, f"^{start}", f"^{base}")
    return reversed(listed.splitlines()[1 : SECRET_COMMITS + 1])


def _values_in_base(repository: Repository, base: str, values: Sequence[str]) -> set[str]:
    """Return those values that the base's files hold already: they were only moved or reformatted. Empty where git's
    search fails, so that all count as new. git gets the values on its standard input, so that no process list shows
    them."""
    if not values:
        return set()
    arguments = ("grep", "-h", "-o", "--text", "--fixed-strings", "-f", "-", base)
    try:
        output = repository.git.execute(*arguments, stdin="\n".join(values).encode() + b"\n", ok=(0, 1)).stdout
    except GitError:  # it took too long: what was not found counts as new
        return set()
    return set(output.decode("utf-8", "replace").split("\n"))


def _make_finding(place: _LeakPlace) -> Finding:
    """Make the finding for one leak, without the secret: what it is, where, and what to do about it. A secret that must
    not be published is a blocker, any other one tech debt; only one in the files has a line."""
    leak, is_published = place.leak, bool(place.commit or place.message)
    where = " in an earlier commit" if place.commit else " in a commit message" if place.message else ""
    if place.commit:
        description = (
            f"Commit {place.commit[:12]} has it, and a later one takes it out: it would be published all the same."
        )
    elif leak.blocks:
        description = "It is not shown here, and nothing is pushed that has it."
    else:
        description = "It is not shown here. If everybody is meant to see it, it can stay."
    return Finding(
        rule=FindingRule.SECRET,
        severity=Severity.BLOCKER if leak.blocks else Severity.TECH_DEBT,
        title=f"{leak.kind}{where}",
        description=description,
        file=printable_path(place.path),
        line=None if is_published else leak.line,
        suggestion=_NEXT_FIX_REPLACES if is_published else _REMOVE_IT,
    )


FINDING_NAME_CHARS = 200
"""Characters of a path in a finding: names may have 4096 bytes."""


def printable_path(path: str) -> str:
    """Return a path of the file system as text on one line: what cannot be printed is escaped, a path over
    FINDING_NAME_CHARS loses its middle."""
    return cut_middle(escape_path(path), FINDING_NAME_CHARS, "…", head_share=0.5)

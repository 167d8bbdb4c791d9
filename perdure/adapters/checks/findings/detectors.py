"""Detectors of secrets: the formats of providers from detect-secrets, and a few that it does not know. Nothing is sent
anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

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
        """Yield every secret of this kind in a line, without what is plainly made up."""
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
    """Yield the passwords in addresses (`scheme://user:password@host`), but for weak or made-up ones, and for hosts
    that are this machine, private or an example."""
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
    """Return whether a value is plainly no secret: it holds a word that says so, few different characters, or a run
    such as `12345678` or `abcdefgh`."""
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
    """Make the detectors, once. Their library is imported only here: it brings an HTTP client along, for a verification
    that is never used."""
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

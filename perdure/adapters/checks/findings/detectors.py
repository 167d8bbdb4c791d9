"""Detectors of secrets: the formats of providers from detect-secrets, and a few it does not know. No network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

SECRET_LINE_CHARS, SECRET_LINE_OVERLAP = 1_000, 300
"""Longer lines are searched in pieces: some patterns take the square of a line's length. No token is longer."""


@dataclass(frozen=True)
class Detector:
    """One kind of secret.

    kind      with its article, for people
    needles   one of them is in every text that holds such a secret: a cheap look before the patterns; with none, these
              are cheap enough themselves
    patterns  the secret is the last long group of a match, or the whole of it
    certain   nothing but a secret has this format, wherever it stands; otherwise tests and examples may hold one
    blocks    it must not be published; some keys are meant to be seen, and a person has to say so
    """

    kind: str
    needles: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    certain: bool = True
    blocks: bool = True

    def possible(self, text: str) -> bool:
        """True where a text could hold such a secret."""
        if not self.needles:
            return any(pattern.search(text) for pattern in self.patterns)
        return any(needle in text for needle in self.needles)

    def values(self, line: str) -> Iterator[str]:
        """Every secret of this kind in a line; what is plainly made up is none."""
        if not self.possible(line):
            return
        for piece in _pieces(line):
            for pattern in self.patterns:
                for found in pattern.finditer(piece):
                    groups = [group for group in found.groups() if group and len(group) >= _GROUP_CHARS]
                    value = groups[-1] if groups else found[0]
                    if not made_up(value):
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


def detectors() -> tuple[Detector, ...]:
    """The chosen ones; high entropy and words such as `password =` are not among them: they cry wolf."""
    return _detectors()


def addresses(line: str) -> Iterator[str]:
    """Passwords in addresses of hosts that are not this machine and no example."""
    if not may_have_address(line):
        return
    for piece in _pieces(line):
        for found in _ADDRESS.finditer(piece):
            user, password, host = found.groups()
            harmless = _WEAK.fullmatch(password) or _LOCAL.fullmatch(host) or _MADE_UP.search(password)
            if password != user and not harmless:
                yield password


def may_have_address(text: str) -> bool:
    return "://" in text and "@" in text


def made_up(value: str) -> bool:
    """A word that says so, few different characters, or a run such as `12345678` or `abcdefgh`."""
    if _MADE_UP.search(value):
        return True
    core = value.rpartition("_")[2] if value.rpartition("_")[2][_GROUP_CHARS - 1 :] else value
    if len(set(core)) < (10 if len(core) >= 30 else 8):
        return True
    return _run(core) >= 8


def _run(value: str) -> int:
    """The longest run of characters that each follow, or repeat, the one before."""
    longest = up = same = 1
    for before, after in pairwise(value):
        up = up + 1 if ord(after) == ord(before) + 1 else 1
        same = same + 1 if after == before else 1
        longest = max(longest, up, same)
    return longest


def _pieces(line: str) -> Iterable[str]:
    if len(line) <= SECRET_LINE_CHARS:
        return (line,)
    step = SECRET_LINE_CHARS - SECRET_LINE_OVERLAP
    return (line[at : at + SECRET_LINE_CHARS] for at in range(0, len(line) - SECRET_LINE_OVERLAP, step))


@cache
def _detectors() -> tuple[Detector, ...]:
    """Imported when needed: the library brings an HTTP client along, for a verification that is never asked for."""
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

    def of(kind: str, plugin: type[RegexBasedDetector], *needles: str) -> Detector:
        return Detector(kind, needles, tuple(plugin().denylist))

    def own(kind: str, needle: str, pattern: str, *, certain: bool = True, blocks: bool = True) -> Detector:
        return Detector(kind, (needle,) if needle else (), (re.compile(pattern),), certain, blocks)

    return (
        of("an AWS key", AWSKeyDetector, "A3T", "ABIA", "ACCA", "AKIA", "ASIA", "aws", "AWS", "Aws"),
        of("an Azure storage key", AzureStorageKeyDetector, "AccountKey="),
        of("a GitHub token", GitHubTokenDetector, "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
        of("a GitLab token", GitLabTokenDetector, "gl", "GR1348941"),
        of("a Mailchimp key", MailchimpDetector, "-us"),
        of("an npm token", NpmDetector, ":_authToken="),
        of("an OpenAI key", OpenAIDetector, "T3BlbkFJ"),
        of("a PyPI token", PypiTokenDetector, "pypi-"),
        of("a SendGrid key", SendGridDetector, "SG."),
        of("a Slack token", SlackDetector, "xox", "XOX", "hooks.slack.com"),
        of("a Square secret", SquareOAuthDetector, "sq0csp-"),
        of("a Stripe key", StripeDetector, "_live_"),
        own("a GitHub token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{60,100}\b"),
        own("an Anthropic key", "sk-ant-", r"\bsk-ant-[a-z0-9]+-[A-Za-z0-9_-]{60,150}"),
        own("a Google API key", "AIza", r"\bAIza[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])", blocks=False),
        own("a Google OAuth secret", "GOCSPX-", r"\bGOCSPX-[0-9A-Za-z_-]{28}"),
        own("a Hugging Face token", "hf_", r"\bhf_[A-Za-z]{34}\b"),
        own("a Discord bot token", "", r"\b[MNO](?=[\w-]*\d)[\w-]{23,25}\.[\w-]{6}\.(?=[\w-]*\d)[\w-]{27,38}\b"),
        own("a Twilio key", "SK", r"\bSK[0-9a-f]{32}\b"),
        own("a DigitalOcean token", "dop_v1_", r"\bdop_v1_[0-9a-f]{64}\b"),
        own("a JSON Web Token", "eyJ", r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}", certain=False, blocks=False),
    )

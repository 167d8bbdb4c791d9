"""A secret that a change adds is found, named by kind and place, and never shown."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from changes import Work, github_token, of, private_key, random_text

from perdure.models.checks.report import Finding, FindingRule, Severity

HEX, LOWER = string.hexdigits[:16], string.ascii_lowercase + string.digits


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path / "work")


def secrets(found: list[Finding]) -> list[Finding]:
    return of(FindingRule.SECRET, found)


TOKENS = {
    "a GitHub token": github_token,
    "an AWS key": lambda: f"aws_secret_access_key = '{random_text(40)}'",
    "a GitLab token": lambda: "glpat-" + random_text(20),
    "a Slack token": lambda: (
        f"xoxb-{random_text(11, string.digits)}-{random_text(12, string.digits)}-{random_text(24)}"
    ),
    "a Stripe key": lambda: "sk_live_" + random_text(24),
    "a SendGrid key": lambda: f"SG.{random_text(22)}.{random_text(43)}",
    "an npm token": lambda: f"//packages.acme.io/:_authToken=npm_{random_text(36)}",
    "a PyPI token": lambda: "pypi-AgEIcHlwaS5vcmc" + random_text(80),
    "an Azure storage key": lambda: f"AccountKey={random_text(86)}==",
    "a Discord bot token": lambda: f"M{random_text(22)}7.{random_text(6)}.{random_text(26)}3",
    "a Twilio key": lambda: "SK" + random_text(32, HEX),
    "an OpenAI key": lambda: f"sk-{random_text(20)}T3BlbkFJ{random_text(20)}",
    "a DigitalOcean token": lambda: "dop_v1_" + random_text(64, HEX),
    "a Mailchimp key": lambda: f"{random_text(32, LOWER)}-us12",
    "a password in an address": lambda: f"postgres://app:{random_text(16)}@db.acme.io/app",
}


@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_in_an_added_line_blocks_and_is_not_shown(work: Work, kind: str) -> None:
    said = TOKENS[kind]()
    value = max(said.replace("'", " ").replace("=", " = ", 1).split(), key=len)
    work.commit({"app.py": f"x = 1\ny = 2\ntoken = {said!r}\n"})
    seen = work.look()
    [one] = secrets(list(seen.findings.findings))
    assert (one.title, one.severity, one.file, one.line) == (kind, Severity.BLOCKER, "app.py", 3)
    assert seen.secrets == 1
    written = seen.findings.model_dump_json()
    assert value not in written
    assert said not in written


@pytest.mark.parametrize(
    "text",
    [
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789",
        "ghp_" + "a1" * 18,
        "AKIAIOSFODNN7EXAMPLE",
        "aws_secret_access_key = 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY'",
        "postgres://postgres:postgres@localhost:5432/app",
        "postgres://app:correcthorse@db/app",
        "https://user:password@acme.io/",
        "https://user:${PASSWORD}@acme.io/",
        "https://user:s3cr3tt0ken@api.example.com/",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\n" + "A" * 64,
        'if "BEGIN RSA PRIVATE KEY" in text:',
        "sk_test_4eC39HqLyjWDarjtT1zdp7dc",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "password = get_password()",
        "NotificationSubscription.update.with_a_very_long_method_name_here",
    ],
)
def test_what_is_made_up_or_no_secret_is_left_alone(work: Work, text: str) -> None:
    assert secrets(work.found({"app.py": f"x = 1\n{text}\n"})) == []


def test_a_private_key_is_found_by_its_content_wherever_it_is_wrapped(work: Work) -> None:
    folded = private_key().replace("\n", "\\n")
    encrypted = private_key().replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,0011\n\n", 1)
    indented = private_key(kind="OPENSSH ").replace("\n", '",\n    "')
    pem = private_key(kind="")
    found = work.found(
        {"a.json": f'{{"k": "{folded}"}}\n', "b.pem": encrypted, "c.py": f"\n\n[{indented}]", "d.pem": pem}
    )
    assert [(one.title, one.file, one.line) for one in secrets(found)] == [
        ("a private key", "a.json", 1),
        ("a private key", "b.pem", 1),
        ("a private key", "c.py", 3),
        ("a private key", "d.pem", 1),
    ]


def test_new_content_under_an_old_header_is_a_new_key(tmp_path: Path) -> None:
    work = Work(tmp_path / "w", {"a.pem": "-----BEGIN PRIVATE KEY-----\nput yours here\n-----END PRIVATE KEY-----\n"})
    [one] = secrets(work.found({"a.pem": private_key(kind="")}))
    assert one.title == "a private key"


def test_a_key_in_a_file_named_example_is_debt_and_a_token_there_blocks(work: Work) -> None:
    found = work.found(
        {
            "tests/example.pem": private_key(),
            "tests/examples/k.pem": private_key(),
            ".env.example": f"T={github_token()}\n",
        }
    )
    assert [(one.severity, one.file) for one in secrets(found)] == [
        (Severity.BLOCKER, ".env.example"),
        (Severity.TECH_DEBT, "tests/example.pem"),
        (Severity.TECH_DEBT, "tests/examples/k.pem"),
    ]
    [blocks] = secrets(work.found({"examples/k.pem": private_key()}))[:1]
    assert blocks.severity is Severity.BLOCKER


def test_a_token_that_may_be_public_is_debt_and_in_a_test_nothing(work: Work) -> None:
    jwt = f"eyJhbGciOiJIUzI1NiJ9.eyJ{random_text(40)}.{random_text(43)}"
    found = work.found({"app.py": f"x = '{jwt}'\n", "tests/test_app.py": f"x = '{jwt}'\n"})
    assert [(one.severity, one.file) for one in secrets(found)] == [(Severity.TECH_DEBT, "app.py")]
    assert work.look().secrets == 0


def test_a_line_that_was_there_before_or_goes_away_is_not_new(tmp_path: Path) -> None:
    old, gone = github_token(), github_token()
    work = Work(tmp_path / "w", {"app.py": f"a = '{old}'\nb = '{gone}'\n"})
    found = work.found({"app.py": None, "moved.py": f"    a = '{old}'\r\n"})
    assert secrets(found) == []


def test_a_secret_is_found_in_long_lines_odd_encodings_links_and_names(work: Work) -> None:
    tokens = [github_token() for _ in range(5)]
    work.commit(
        {
            "min.js": "x" * 100_000 + f";t='{tokens[0]}';" + "y" * 100_000,
            "latin.txt": b"\xe9t\xe9 = " + tokens[1].encode() + b"\n",
            "utf16.ini": f"\ufefftoken = {tokens[2]}\n".encode("utf-16-le"),
            f"{tokens[3]}.txt": "hello\n",
        },
        links={"link": f"https/{tokens[4]}"},
    )
    seen = work.look()
    found = secrets(list(seen.findings.findings))
    assert {one.file for one in found} == {"min.js", "latin.txt", "utf16.ini", "[secret].txt", "link"}
    assert seen.secrets == 5
    assert not any(token in seen.findings.model_dump_json() for token in tokens)


def test_a_secret_that_an_earlier_commit_would_publish_blocks_though_the_files_are_clean(work: Work) -> None:
    token, later = github_token(), github_token()
    first = work.commit({"app.py": f"x = '{token}'\n"})
    work.commit({"app.py": "x = 2\n"})
    work.commit({"app.py": f"x = '{later}'\n"})
    work.commit({"app.py": f"x = '{later}'\ny = 1\n"}, message=f"Use {later}")
    seen = work.look()
    here, before = secrets(list(seen.findings.findings))
    assert (here.title, here.line) == ("a GitHub token", 1)
    assert (before.title, before.file, before.line) == ("a GitHub token in an earlier commit", "app.py", None)
    assert first[:12] in before.description
    assert seen.secrets == 2
    text = seen.findings.model_dump_json()
    assert token not in text
    assert later not in text


def test_commits_that_the_branch_had_before_are_not_held_against_the_delivery(work: Work) -> None:
    work.commit({"app.py": f"x = '{github_token()}'\n"})
    begun = work.commit({"app.py": "x = 2\n"})
    work.commit({"app.py": "x = 3\n"})
    assert len(secrets(list(work.look().findings.findings))) == 1
    assert secrets(list(work.look(begun_at=begun).findings.findings)) == []


def test_a_token_in_a_commits_words_blocks(work: Work) -> None:
    work.commit({"app.py": "x = 2\n"}, message=f"Rotate {github_token()}")
    [one] = secrets(list(work.look().findings.findings))
    assert (one.title, one.file) == ("a GitHub token in a commit message", "")

"""`perdure doctor` says who is told, never by more than the host, and refuses what is no address."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import pytest

from perdure.adapters.system.files import try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.local.access import fingerprint, notify_variables
from perdure.local.places import Places, SupervisorRecord
from tests.cli.conftest import Cli

SLACK = "https://hooks.slack.com/services/T0/B0/secret-part"


@pytest.mark.parametrize(
    ("env", "mark", "text"),
    [
        ({}, None, ""),
        ({"PERDURE_WEBHOOK_URL": SLACK}, "✓", "hooks.slack.com (waiting, question, budget, reminder, ended)"),
        ({"PERDURE_WEBHOOK_URL": "slack.com/secret-part"}, "✗", "this is not an http or https address"),
        ({"PERDURE_WEBHOOK_URL": SLACK, "PERDURE_WEBHOOK_SECRET": "secret-part"}, "✗", "a secret of 11 bytes"),
    ],
)
def test_doctor_names_who_is_told_by_host_alone(cli: Cli, env: dict[str, str], mark: str | None, text: str) -> None:
    ran = cli("doctor", "--json", **env)
    found = [finding for finding in json.loads(ran.out) if finding["name"] == "notify"]
    assert [finding["mark"] for finding in found] == ([mark] if mark else [])
    assert all(finding["text"].startswith(text) for finding in found)
    assert "secret-part" not in ran.out + ran.err


def test_doctor_says_who_is_told_in_the_clear_and_how_to_try_it(cli: Cli) -> None:
    urls = "http://127.0.0.1:9/x http://10.0.0.7/secret-part HTTPS://a.example/"
    (found,) = [
        one for one in json.loads(cli("doctor", "--json", PERDURE_WEBHOOK_URL=urls).out) if one["name"] == "notify"
    ]
    assert found["fix"].splitlines() == [
        "perdure doctor --notify sends each a test",
        "not signed: set PERDURE_WEBHOOK_SECRET if a receiver checks that; chats do not",
        "not encrypted on its way to 10.0.0.7: write https, unless that network is yours",
    ]


def test_a_test_that_nobody_can_send_says_what_to_start(cli: Cli) -> None:
    ran = cli("doctor", "--notify", PERDURE_WEBHOOK_URL=SLACK)
    assert ran.code == 1
    assert ran.out.startswith("✗ notify ")
    assert "perdure up --detach" in ran.out
    assert not cli.home.exists() or not any(cli.home.glob("server.json")), "it starts nothing"


@pytest.mark.parametrize(("theirs", "notes"), [({}, 1), ({"PERDURE_WEBHOOK_URL": SLACK}, 0)])
def test_doctor_says_when_the_worker_that_runs_tells_somebody_else(
    cli: Cli, theirs: dict[str, str], notes: int
) -> None:
    places, now = Places(Home(cli.home)), datetime.now(UTC)
    known = fingerprint(theirs, now.isoformat(), notify_variables())
    record = SupervisorRecord(pid=os.getpid(), worker_pid=os.getpid(), restarts=0, started_at=now, notify_access=known)
    write_whole(places.supervisor_record, record.model_dump_json().encode())
    lock = try_lock(places.supervisor_lock)
    assert lock is not None
    try:
        ran = cli("doctor", "--json", PERDURE_WEBHOOK_URL=SLACK)
    finally:
        os.close(lock)
    found = [finding for finding in json.loads(ran.out) if finding["name"] == "notify"]
    assert [finding["text"] for finding in found if finding["mark"] == "!"] == [
        "the worker that runs was started with other addresses or another secret than yours"
    ] * notes

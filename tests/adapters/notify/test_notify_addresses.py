"""Whom a host tells: from its file or its environment, never shown beyond the host's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.notify.addresses import Listeners
from perdure.adapters.repository.config import load_repository_config
from perdure.adapters.repository.host import load_host_config
from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.models.config.host import NotifySettings
from perdure.models.errors import BadInput
from tests.receiver import SECRET

SLACK = "https://hooks.slack.com/services/T0/B0/secret-part"


def listeners(**env: str) -> Listeners:
    return Listeners.from_settings(NotifySettings(), env)


def test_addresses_are_named_by_their_hosts_the_second_of_one_host_by_a_number() -> None:
    settings = NotifySettings.model_validate({"url": [SLACK, "http://10.0.0.7:8065/hooks/x", SLACK + "2"]})
    found = Listeners.from_settings(settings, {})
    assert [address.name for address in found.addresses] == [
        "hooks.slack.com",
        "10.0.0.7:8065",
        "hooks.slack.com (2)",
    ]
    assert found.names_for("ended") == tuple(address.name for address in found.addresses)
    assert "secret-part" not in repr(found) + repr(settings) + settings.model_dump_json()


def test_the_variables_stand_for_the_file_and_are_gone_from_the_environment() -> None:
    env = {"PERDURE_WEBHOOK_URL": f"{SLACK} https://b.example/", "PERDURE_WEBHOOK_SECRET": SECRET, "PATH": "/bin"}
    found = Listeners.from_environment(NotifySettings.model_validate({"url": "https://a.example/"}), env)
    assert found.names_for("waiting") == ("hooks.slack.com", "b.example")
    assert env == {"PATH": "/bin"}
    assert {SLACK, SECRET} <= set(found.secrets)


def test_a_worker_keeps_them_out_of_its_environment_and_out_of_what_tools_print(tmp_path: Path) -> None:
    env = {"PERDURE_WEBHOOK_URL": SLACK, "PERDURE_WEBHOOK_SECRET": SECRET}
    host = Host.from_environment(Home(tmp_path), env)
    assert env == {}
    said = str(host.redact_blocks([{"type": "text", "text": f"{SLACK} {SECRET}"}]))
    assert "secret-part" not in said
    assert SECRET not in said
    host.inflight.close()


def test_who_is_named_twice_is_told_once_and_an_address_of_another_form_is_named_by_its_host() -> None:
    found = listeners(PERDURE_WEBHOOK_URL=f"{SLACK} http://[::1]:80/x {SLACK} https://me:pass-secret@b.example/x")
    assert found.names_for("ended") == ("hooks.slack.com", "[::1]:80", "b.example")
    assert "secret" not in repr(found)


def test_an_empty_secret_signs_nothing_and_several_of_both_may_stand_on_lines() -> None:
    assert listeners(PERDURE_WEBHOOK_URL=SLACK, PERDURE_WEBHOOK_SECRET=" ").keys == ()
    found = listeners(
        PERDURE_WEBHOOK_URL=f"{SLACK}\nhttps://b.example/\n", PERDURE_WEBHOOK_SECRET=f"{SECRET}\n{SECRET}"
    )
    assert (len(found.addresses), len(found.keys)) == (2, 2)


def test_only_events_that_are_wanted_are_told_and_a_test_always() -> None:
    found = Listeners.from_settings(NotifySettings.model_validate({"url": SLACK, "events": ["question", "ended"]}), {})
    assert [bool(found.names_for(event)) for event in ("question", "ended", "waiting", "budget")] == [
        True,
        True,
        False,
        False,
    ]
    assert found.names_for("test")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/x-secret",
        "hooks/x-secret",
        "http://",
        "http://h:port/x-secret",
        "https://a'b/x-secret",
        "http://[::1/x-secret",
    ],
)
def test_what_is_no_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(BadInput, match="this is not an") as error:
        listeners(PERDURE_WEBHOOK_URL=f"https://fine.example {url}")
    assert "secret" not in str(error.value)
    assert "PERDURE_WEBHOOK_URL, address 2" in str(error.value)


def test_a_line_break_in_an_address_of_the_file_is_refused() -> None:
    with pytest.raises(BadInput, match="this is not an") as error:
        Listeners.from_settings(NotifySettings.model_validate({"url": "https://h.example/x-secret\nx: y"}), {})
    assert "secret" not in str(error.value)


def test_more_addresses_than_are_told_are_refused() -> None:
    with pytest.raises(BadInput, match="at most 10"):
        listeners(PERDURE_WEBHOOK_URL=" ".join([SLACK] * 11))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[notify]\nurl = 5", "one address in quotes"),
        ('[notify]\nurl = ["https://h/x-secret", 5]', "one address in quotes"),
        ('[notify]\nevents = ["end"]', "ended"),
        ('[notify]\nurls = "https://h/x-secret"', "did you mean url"),
    ],
)
def test_a_wrong_file_is_refused_by_line_without_the_address(
    text: str, words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("c") / "config.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=words) as error:
        load_host_config({}, file)
    assert "config.toml:2" in str(error.value)
    assert "secret" not in str(error.value)


def test_a_repository_cannot_name_who_is_told() -> None:
    with pytest.raises(BadInput, match="unknown key notify"):
        load_repository_config('version = 1\n[notify]\nurl = "https://h/x"', "perdure.toml")

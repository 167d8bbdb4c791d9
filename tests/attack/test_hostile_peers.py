"""A model API or a forge that misbehaves costs neither words, nor memory, nor time without end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack import peers


@pytest.mark.parametrize("name", peers.MODEL)
def test_a_model_that_misbehaves_is_given_up_in_words(name: str) -> None:
    seen = peers.model_case(name)
    assert seen.startswith(("ModelUnavailable: ", "ModelRefusesUs: ")), seen
    assert peers.MODEL[name][1] in seen


def test_a_long_reply_that_a_gateway_passes_on_line_by_line_is_no_misbehaviour() -> None:
    assert peers.line_by_line() == "a reply"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_conversation_follows_no_redirect(status: int) -> None:
    seen, arrived = peers.redirected(status)
    assert arrived == 0
    assert seen.startswith(f"ModelRefusesUs: the model API answers {status} and sends us elsewhere")


def test_a_certificate_nobody_vouches_for_is_named_with_host_and_remedy(tmp_path: Path) -> None:
    seen = peers.unvouched(tmp_path)
    assert seen.startswith("ModelRefusesUs: certificate verify failed: the certificate of https://127.0.0.1:")
    assert "SSL_CERT_FILE" in seen


def test_a_server_without_TLS_is_said_to_be_one() -> None:
    assert "TLS with https://127.0.0.1:" in peers.plain_for_tls()


@pytest.mark.parametrize("name", peers.FORGE)
def test_a_forge_that_misbehaves_is_tried_again_later(name: str) -> None:
    answer, words = peers.FORGE[name]
    seen = peers.forge_case(answer, within_s=1.0, most=4 * 1024**2)
    assert seen.startswith("ForgeUnavailable: ")
    assert words in seen

"""`[app] ready` and `pages` lead to this delivery's own ports and nowhere else."""

from __future__ import annotations

import pytest

from perdure.adapters.browser.browser import InvalidAppAddress, resolve_addresses
from perdure.models.config.repository import AppSettings

ENV = {"FRONTEND_PORT": "9201", "BACKEND_PORT": "9101", "EMPTY": ""}
READY = "http://127.0.0.1:$FRONTEND_PORT/app/?x=1"


def test_pages_are_relative_to_the_origin_and_variables_are_filled_in() -> None:
    names = ("/", "settings", "/a?b=c#d", "http://localhost:${BACKEND_PORT}/docs")
    ready, found, refused = resolve_addresses(AppSettings(start="x", ready=READY, pages=names), ENV)
    assert ready == "http://127.0.0.1:9201/app/?x=1"
    assert found == {
        "/": "http://127.0.0.1:9201/",
        "settings": "http://127.0.0.1:9201/settings",
        "/a?b=c#d": "http://127.0.0.1:9201/a?b=c#d",
        "http://localhost:${BACKEND_PORT}/docs": "http://localhost:9101/docs",
    }
    assert refused == {}


def test_without_settings_it_is_the_first_page_at_the_leased_port() -> None:
    assert resolve_addresses(AppSettings(start="x"), ENV) == (
        "http://127.0.0.1:9201/",
        {"/": "http://127.0.0.1:9201/"},
        {},
    )


@pytest.mark.parametrize(
    "page",
    ["file:///etc/passwd", "https://example.org/", "//example.org/", "javascript:alert(1)", "http://10.0.0.1/",
     "http://user@127.0.0.1/", "http://127.0.0.1:99999/", "http://[::1/", "chrome://version", "$NOT_SET", "100%$"],
)  # fmt: skip
def test_any_other_address_is_refused_and_the_others_are_not(page: str) -> None:
    ready, found, refused = resolve_addresses(AppSettings(start="x", ready=READY, pages=("/", page)), ENV)
    assert (ready, list(found), list(refused)) == ("http://127.0.0.1:9201/app/?x=1", ["/"], [page])
    assert page in refused[page]
    with pytest.raises(InvalidAppAddress, match="ready"):
        resolve_addresses(AppSettings(start="x", ready=page), ENV)

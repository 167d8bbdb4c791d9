"""A proof is about one delivery, by its workflow's id or by the key that its activities know."""

from __future__ import annotations

from perdure.models.ids import delivery_key
from perdure.models.proof import proof, proves


def test_a_backlogs_delivery_proves_itself_by_its_key_and_by_no_other() -> None:
    request = {"repository": "/srv/git/durations.git", "request": "Add it"}
    made = proof(b"k", "night/api", request)
    assert proves(made, b"k", delivery_key("night/api"), request)
    assert not proves(made, b"k", "night/page", request)
    assert not proves(made, b"k", "night-api", request)
    assert not proves(made, b"other", "night/api", request)
    assert not proves(made, b"k", "night/api", request | {"repository": "/etc"})

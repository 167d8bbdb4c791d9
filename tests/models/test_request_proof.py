"""A proof is about one delivery, by its workflow's id or by the key that its activities know."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.delivery.request import is_valid_proof, request_proof, schedule_proof
from perdure.models.ids import DELIVERY_ID, branch_name, delivery_key, find_scheduled_workflow


def test_a_backlogs_delivery_proves_itself_by_its_key_and_by_no_other() -> None:
    request = {"repository": "/srv/git/durations.git", "request": "Add it"}
    made = request_proof(b"k", "night/api", request)
    assert is_valid_proof(made, b"k", delivery_key("night/api"), request)
    assert not is_valid_proof(made, b"k", "night/page", request)
    assert not is_valid_proof(made, b"k", "night-api", request)
    assert not is_valid_proof(made, b"other", "night/api", request)
    assert not is_valid_proof(made, b"k", "night/api", request | {"repository": "/etc"})


RUN = "night-2026-11-23T23:00:00Z"


def test_a_schedules_proof_holds_for_what_it_starts_and_for_nothing_else() -> None:
    request = {"repository": "/srv/git/durations.git", "request": "Add it"}
    made = schedule_proof(b"k", "night", request)
    assert is_valid_proof(made, b"k", RUN, request)
    assert is_valid_proof(made, b"k", "night-2027-01-01T00:00:00Z", request)
    for other in (
        *("night", "night/api", f"{RUN}/api", "nightly-2026-11-23T23:00:00Z", "a-night-2026-11-23T23:00:00Z"),
        *("night-2026-11-23", "night-x-2026-11-23T23:00:00Z", f"{RUN}-2026-11-23T23:00:00Z", delivery_key(RUN)),
        *("night-2026-11-23T23:00:00.5Z", "night-2026-11-23t23:00:00z", f"{RUN}\n", f" {RUN}", f"night-{RUN}"),
    ):
        assert not is_valid_proof(made, b"k", other, request), other
    assert not is_valid_proof(made, b"other", RUN, request)
    assert not is_valid_proof(made, b"k", RUN, request | {"repository": "/etc"})


def test_a_plain_proof_is_not_stretched_to_a_schedule_nor_a_schedules_to_its_name() -> None:
    request = {"repository": "/srv/git/durations.git", "request": "Add it"}
    assert not is_valid_proof(request_proof(b"k", "night", request), b"k", RUN, request)
    assert not is_valid_proof(schedule_proof(b"k", RUN, request), b"k", RUN, request)
    assert is_valid_proof(request_proof(b"k", RUN, request), b"k", RUN, request), (
        "a retry of it proves itself as any other"
    )


@given(st.from_regex(DELIVERY_ID, fullmatch=True), st.sampled_from(("", "/api")))
def test_what_a_schedule_starts_has_branches_and_directories_of_its_own(schedule: str, item: str) -> None:
    runs = [f"{schedule}-2026-11-2{day}T23:00:00Z{item}" for day in range(3)]
    keys = [delivery_key(run) for run in runs]
    assert len({*keys}) == 3
    assert all(DELIVERY_ID.fullmatch(key) for key in keys)
    assert all(re.fullmatch(r"perdure/[a-z0-9-]+", branch_name(key)) for key in keys)


@pytest.mark.parametrize(
    ("name", "run"),
    [("night", RUN), ("night/api", f"{RUN}/api"), ("nigh", ""), ("night-2026", ""), ("night/web", ""), ("", "")],
)
def test_a_schedules_name_means_the_newest_of_its_runs(name: str, run: str) -> None:
    known = ["nightly", f"{RUN}/api", RUN, "night-2026-11-22T23:00:00Z", "night-2026-11-22T23:00:00Z/api"]
    assert find_scheduled_workflow(name, known) == run

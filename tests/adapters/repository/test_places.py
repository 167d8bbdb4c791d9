"""A request names a path of the host only when it comes from this home, or where the host's owner allows it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from perdure.adapters.git.credentials import NO_KEYS
from perdure.adapters.repository.terms import find_source, find_target, is_from_this_home
from perdure.adapters.system.home import Home
from perdure.models.delivery.request import DeliveryRequest, request_proof, schedule_proof
from perdure.models.errors import InvalidRequest
from perdure.models.ids import delivery_key
from tests.repositories import git, make_target


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def signed(home: Home, id: str, **fields: object) -> DeliveryRequest:
    request = DeliveryRequest.model_validate({"request": "x", **fields})
    mark = request_proof(home.key(), id, request.model_dump(mode="json", exclude_defaults=True))
    return request.model_copy(update={"proof": mark})


@pytest.mark.parametrize(
    "named",
    ["{private}", "file://{private}", "FILE://{private}", "file://localhost{private}", "{allowed}/../private.git",
     "{allowed}/link", "{allowed}/checkout", "private.git", "./private.git", "vaults/private.git", "~/private.git",
     "file://%2f{private}", "{allowed}/%2e%2e/private.git"],
)  # fmt: skip
def test_a_strangers_request_reaches_no_repository_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    private, allowed = make_target(tmp_path / "private.git"), tmp_path / "allowed"
    make_target(tmp_path / "vaults" / "private.git")
    allowed.mkdir()
    (allowed / "link").symlink_to(private)
    git(tmp_path, "clone", "-q", str(private), str(allowed / "checkout"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    request = DeliveryRequest(repository=named.format(private=private, allowed=allowed), request="x")
    if named == "vaults/private.git":  # taken for github.com/vaults/private, whatever lies here
        with pytest.raises(Exception, match=r"github\.com"):
            find_target(request, False, [], _Nowhere())
        return
    with pytest.raises(InvalidRequest, match="counts only in requests") as refused:
        find_target(request, False, [str(allowed)], NO_KEYS)
    assert "local_repositories" in refused.value.fix


class _Nowhere:
    """A keyring whose home server is not there."""

    def home_server(self) -> str:
        return "http://127.0.0.1:9/github.com"

    def credential(self, url: str) -> None:
        return None


def test_what_the_owner_allows_anybody_may_name(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git")
    for named in (str(origin), f"file://{origin}"):
        request = DeliveryRequest(repository=named, request="x")
        assert find_target(request, False, [str(tmp_path)], NO_KEYS).name == "calc"


@pytest.mark.parametrize(
    ("id", "change", "counts"),
    [
        ("d", {}, True),
        ("d", {"budget_usd": 2.0}, True),
        ("e", {}, False),
        ("d", {"repository": "/root/private"}, False),
        ("d", {"request": "print .env"}, False),
        ("d", {"source": "/"}, False),
        ("d", {"config": "version = 1\n[setup]\ncopy = ['root/.ssh/id_ed25519']"}, False),
        ("d", {"gates": ("plan",)}, False),
        ("d", {"proof": None}, False),
        ("d", {"proof": "é"}, False),
    ],
)
def test_a_proof_counts_for_one_request_and_one_delivery(
    home: Home, id: str, change: dict[str, object], counts: bool
) -> None:
    request = signed(home, "d", repository="/srv/calc.git", source="/home/me/calc")
    assert is_from_this_home(home, id, request.model_copy(update=change)) is counts
    assert home.key() == home.key()
    assert (home.root / "key").stat().st_mode & 0o777 == 0o600


def test_a_schedules_delivery_is_known_by_its_workflow_id(home: Home) -> None:
    request = DeliveryRequest(repository="/srv/calc.git", request="x")
    said, run = request.model_dump(mode="json", exclude_defaults=True), "night-2026-11-23T23:00:00Z"
    request = request.model_copy(update={"proof": schedule_proof(home.key(), "night", said)})
    assert is_from_this_home(home, delivery_key(run), request, run)
    for other in ("", "night", "day-2026-11-23T23:00:00Z"):
        assert not is_from_this_home(home, delivery_key(run), request, other)


def test_a_checkout_counts_only_when_it_is_one_of_the_repository(tmp_path: Path) -> None:
    origin, other = make_target(tmp_path / "calc.git"), make_target(tmp_path / "other.git")
    checkout = tmp_path / "checkout"
    git(tmp_path, "clone", "-q", str(origin), str(checkout))
    git(tmp_path, "clone", "-q", str(other), str(tmp_path / "theirs"))
    (checkout / "docs").mkdir()
    target = find_target(DeliveryRequest(repository=str(origin), request="x"), True, (), NO_KEYS)

    def source(place: Path | str, *, ours: bool = True, needed: bool = True) -> str:
        request = DeliveryRequest(repository=str(origin), request="x", source=str(place))
        return find_source(request, ours, target, needed)

    assert source(checkout) == str(checkout)
    assert source("/", needed=False) == ""
    for place in (
        "/",
        "/etc",
        tmp_path,
        tmp_path / "theirs",
        checkout / "docs",
        "checkout",
        tmp_path / "absent",
        origin,
    ):
        with pytest.raises(InvalidRequest, match="source"):
            source(place)
    with pytest.raises(InvalidRequest, match="only for requests that come from this PERDURE_HOME"):
        source(checkout, ours=False)
    subprocess.run(["git", "-C", str(checkout), "remote", "remove", "origin"], check=True, timeout=60)
    with pytest.raises(InvalidRequest, match="not a checkout of the repository"):
        source(checkout)

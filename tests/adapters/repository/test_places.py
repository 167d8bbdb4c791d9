"""A request names a path of the host only when it comes from this home, or where the host's owner allows it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
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


def _borrow(place: Path, private: Path) -> None:
    git(place.parent, "clone", "-q", "--bare", "--shared", str(private), str(place))


def _link_objects(place: Path, private: Path) -> None:
    git(place.parent, "init", "-q", "--bare", str(place))
    (place / "objects").rename(place / "old")
    (place / "objects").symlink_to(private / "objects")


def _link_pack(place: Path, private: Path) -> None:
    git(place.parent, "init", "-q", "--bare", str(place))
    git(private, "repack", "-adq")
    for pack in (private / "objects" / "pack").iterdir():
        (place / "objects" / "pack" / pack.name).symlink_to(pack)


def _link_refs(place: Path, private: Path) -> None:
    git(place.parent, "init", "-q", "--bare", str(place))
    (place / "refs" / "heads" / "their").symlink_to(private / "refs" / "heads")


def _name_git_directory(place: Path, private: Path) -> None:
    place.mkdir()
    (place / ".git").write_text(f"gitdir: {private}\n")


def _share_directory(place: Path, private: Path) -> None:
    git(place.parent, "init", "-q", "--bare", str(place))
    (place / "commondir").write_text(f"{private}\n")


def _borrow_in_two_steps(place: Path, private: Path) -> None:
    between = place.parent / "between.git"
    _borrow(between, private)
    git(place.parent, "init", "-q", "--bare", str(place))
    (place / "objects" / "info" / "alternates").write_text("# by a relative path\n../../between.git/objects\n")


def _link_in_a_link(place: Path, private: Path) -> None:
    git(place.parent, "init", "-q", "--bare", str(place))
    (place.parent / "store").mkdir()
    (place.parent / "store" / "heads").symlink_to(private / "refs" / "heads")
    (place / "refs" / "more").symlink_to(place.parent / "store")


def _lie_below(place: Path, private: Path) -> None:
    """The allowed directory lies in a checkout that is not allowed."""
    git(place.parent.parent, "clone", "-q", str(private), "outer")
    (place.parent.parent / "outer" / ".git").rename(place.parent.parent / ".git")
    place.mkdir()


@pytest.mark.parametrize(
    "lead_out",
    [_borrow, _link_objects, _link_pack, _link_refs, _name_git_directory, _share_directory, _borrow_in_two_steps,
     _link_in_a_link, _lie_below],
)  # fmt: skip
def test_an_allowed_repository_does_not_lead_out_of_its_directory(
    tmp_path: Path, lead_out: Callable[[Path, Path], None]
) -> None:
    private, allowed = make_target(tmp_path / "outside" / "private.git"), tmp_path / "some" / "allowed"
    allowed.mkdir(parents=True)
    lead_out(allowed / "calc.git", private)
    request = DeliveryRequest(repository=str(allowed / "calc.git"), request="x")
    with pytest.raises(InvalidRequest, match="git would read a part of it outside"):
        find_target(request, False, [str(allowed)], NO_KEYS)


def test_what_an_allowed_repository_borrows_inside_is_read(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git")
    git(tmp_path, "clone", "-q", "--bare", "--shared", str(origin), "borrowed.git")
    git(tmp_path, "clone", "-q", str(origin), "checkout")
    git(tmp_path / "checkout", "worktree", "add", "-q", "../beside")
    for name in ("borrowed.git", "checkout", "beside"):
        request = DeliveryRequest(repository=str(tmp_path / name), request="x")
        assert find_target(request, False, [str(tmp_path)], NO_KEYS).heads


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

"""The night's receipt is counted from history and git: each kind of loss shows, and nothing is asserted."""

from __future__ import annotations

from perdure.adapters.git.remote import BranchCommit
from perdure.cli.backlog.receipt import RemoteState, make_receipt
from perdure.client.history.fold import BacklogHistory
from perdure.models.backlog.state import BacklogProgress, ItemView
from perdure.models.ids import branch_name, delivery_key
from perdure.render.backlog.report import BacklogReceipt


def shown(status: str = "ended", **phases: str) -> BacklogProgress:
    items = tuple(ItemView(id=id, phase=phase, commit="c" * 40) for id, phase in phases.items())
    return BacklogProgress(
        backlog_id="night", run_id="r", repository="/r", status=status, branch="perdure/night", items=items
    )


def past(*given: str, complete: bool = True, **landed: str) -> BacklogHistory:
    said = {id: (commit,) for id, commit in landed.items()}
    return BacklogHistory({}, {id: {"id": id} for id in given}, said, {}, complete)


def commit(item: str, sha: str = "a" * 40, parents: tuple[str, ...] = ("b" * 40,)) -> BranchCommit:
    return BranchCommit(sha, parents, delivery_key(f"night/{item}") if item else "")


def counted(progress: BacklogProgress, known: BacklogHistory, *commits: BranchCommit, **more: object) -> BacklogReceipt:
    return make_receipt(progress, known, RemoteState(commits, **more))  # type: ignore[arg-type]


def test_a_whole_night_has_three_zeros() -> None:
    found = counted(shown(api="landed", page="blocked"), past("api", "page"), commit(""), commit("api"))
    assert found.clean
    assert found.lines() == ["✓ 1 of 2 landed · items lost 0 · landed twice 0 · branches without an owner 0"]


def test_an_item_that_nobody_knows_any_more_is_lost() -> None:
    assert counted(shown(api="landed"), past("api", "page"), commit("api")).lost == (
        "page was given, and the backlog does not know it",
    )


def test_a_landing_that_is_not_on_the_branch_is_lost_and_one_that_nobody_tells_of_too() -> None:
    found = counted(shown(api="landed", page="failed"), past("api", "page"), commit("page"))
    assert found.lost == (
        "api is said to have landed as ccccccc, and is not on the branch",
        "page is on the branch as aaaaaaa, and is said to be failed",
    )


def test_what_is_left_in_the_middle_when_all_has_ended_is_lost_and_not_before() -> None:
    assert len(counted(shown(api="building", page="ready"), past("api", "page")).lost) == 2
    assert counted(shown("running", api="building", page="ready"), past("api", "page")).lost == ()
    assert counted(shown("cancelled", api="building", page="ready"), past("api", "page")).lost == (), "somebody said so"


def test_two_commits_of_one_item_are_a_landing_twice() -> None:
    found = counted(shown(api="landed"), past("api"), commit("api"), commit("api", "d" * 40))
    assert found.twice == ("api as aaaaaaa, ddddddd",)
    assert "landed twice 1" in found.lines()[0]


def test_a_branch_is_owned_by_a_pull_request_or_by_what_runs() -> None:
    mine = branch_name(delivery_key("night/api"))
    heads = {"perdure/night": True, mine: False}
    known = past("api")
    assert counted(shown(api="failed"), known, owned=heads).ownerless == (mine,)
    assert counted(shown("running", api="building"), known, owned=heads).ownerless == ()
    assert counted(shown(api="failed"), known, owned={"perdure/night": False}).ownerless == ("perdure/night",)


def test_a_merge_on_the_branch_is_named_and_one_below_it_is_not_ours() -> None:
    merge = ("b" * 40, "c" * 40)
    found = counted(
        shown(api="landed"), past("api"), commit("", parents=merge), commit("api"), commit("", parents=merge)
    )
    assert found.bent == ("aaaaaaa has 2 parents",)


def test_what_could_not_be_read_is_said_and_history_counts_then() -> None:
    found = counted(
        shown(api="landed"), past("api", complete=False, api="c" * 40), unread_reason="the branch is not there"
    )
    assert not found.clean
    assert found.lost == ()
    assert found.landed == 1
    assert found.unread == ("the branch is not there", "Temporal does not have the backlog's first runs any more")
    assert found.lines()[0].startswith("! 1 of 1 landed")

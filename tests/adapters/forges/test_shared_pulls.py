"""One pull request that several of ours write to, also at once; a stranger's is nobody's."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio import gather, to_thread
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twin_repository import HEAD, TOKEN, TwinRepository

from perdure.adapters.forges.base import Proposal, ProposedPullRequest
from perdure.adapters.forges.body import issue_numbers, marker, merge_part, part_start
from perdure.adapters.forges.local import LocalForge
from perdure.models.limits import FORGE_TEXT_CHARS
from tests.fork_server import fork
from tests.repositories import git, make_target


def part(delivery: str, words: str, issue: int) -> dict[str, Any]:
    """The fields of its proposal that are its own."""
    end = f"\nCloses #{issue}.\n\n{marker(delivery)}\n"
    body = f"{part_start(delivery)}\n{words}\n{end}"
    return {"delivery": delivery, "title": f"Items of {delivery}", "body": body, "body_end": end, "shares_body": True}


NIGHT, DAY = part("night", "| api | landed |", 1), part("day", "| mail | landed |", 2)
NIGHT_AGAIN = part("night", "| api | landed again |", 1)


async def test_on_github_a_part_is_added_to_what_others_and_people_wrote_and_its_retry_changes_that_part_alone(
    twin: TwinRepository,
) -> None:
    hers = "Hers, above.\n\n" + NIGHT["body"] + "\nHers, below."
    number = twin.hub.add_pull("me/calc", HEAD, title="Items of night", body=hers.replace("\n", "\r\n"))
    both = "Hers, above.\n\n" + NIGHT["body"] + "\n" + DAY["body"] + "\nHers, below."
    for _ in range(2):
        assert await made(twin, DAY) == (number, ()), "no note says that it is somebody else's"
        (pull,) = twin.hub.pulls("me/calc")
        assert (pull["title"], pull["body"].strip()) == ("Items of night", both)
    assert twin.made("pulls/update") == 1, "a retry finds it as it is to be"
    await made(twin, NIGHT_AGAIN)
    (pull,) = twin.hub.pulls("me/calc")
    assert pull["body"].strip() == both.replace("| landed |", "| landed again |", 1)
    for name, ours in (("night", True), ("day", True), ("eve", False)):
        assert [one.ours for one in await to_thread(twin.forge().pulls_of_branch, HEAD, name)] == [ours]


async def test_on_github_backlogs_that_close_in_the_same_moment_all_have_their_part(twin: TwinRepository) -> None:
    """There is no compare-and-swap of a text: each looks whether its part stayed."""
    twin.hub.add_pull("me/calc", HEAD, title="Items of night", body=NIGHT["body"])
    others = [part(f"day-{n}", f"| mail {n} | landed |", n) for n in range(3)]
    await gather(*(made(twin, fields) for fields in others))
    (pull,) = twin.hub.pulls("me/calc")
    for fields in (NIGHT, *others):
        assert pull["body"].count(fields["body"].strip()) == 1, pull["body"]


async def test_on_github_a_strangers_pull_request_for_the_branch_gets_no_part(twin: TwinRepository) -> None:
    number = twin.hub.add_pull("me/calc", HEAD, title="Mine!", body="By hand.")
    at, (note,) = await made(twin, DAY)
    assert (at, "is not Perdure's" in note) == (number, True)
    (pull,) = twin.hub.pulls("me/calc")
    assert (pull["title"], pull["body"]) == ("Mine!", "By hand.")


async def made(twin: TwinRepository, fields: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
    opened: ProposedPullRequest = await to_thread(twin.forge().open_or_update_pull, twin.proposal(**fields))
    return opened.pull_request.number, opened.notes


def test_a_local_one_is_each_ones_own_of_those_that_have_a_part_in_it(tmp_path: Path) -> None:
    bare = make_target(tmp_path / "calc.git")
    sha = git(bare, "commit-tree", "-p", "main", "-m", "x", "main^{tree}").strip()
    git(bare, "update-ref", "refs/heads/shared", sha)
    forge = LocalForge(str(bare))
    for fields in (NIGHT, DAY, DAY, NIGHT_AGAIN):
        opened = forge.open_or_update_pull(Proposal(head="shared", head_sha=sha, base="main", **fields)).pull_request
        assert (opened.number, opened.title) == (1, "Items of night")
    assert forge.pull_details(1).body == NIGHT_AGAIN["body"] + "\n" + DAY["body"]
    for name, ours in (("night", True), ("day", True), ("eve", False)):
        assert [one.ours for one in forge.pulls_of_branch("shared", name)] == [ours]
    assert [forge.count_open_pulls(but, 9) for but in ("night", "day", "eve", "")] == [0, 0, 1, 1]


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="<\r"), max_size=80)


def proposal(delivery: str, words: str, *, begun: bool = True, issue: int = 0, title: str = "") -> Proposal:
    end = f"\n\nCloses #{issue}.\n\n{marker(delivery)}\n"
    begin = f"{part_start(delivery)}\n" if begun else ""
    return Proposal(
        delivery,
        title or f"of {delivery}",
        f"{begin}{words}{end}",
        "shared",
        "a" * 40,
        "main",
        body_end=end,
        shares_body=True,
    )


@given(st.lists(st.tuples(st.sampled_from("abc"), WORDS), max_size=8), WORDS)
def test_each_has_one_part_as_it_wrote_it_last_and_what_people_wrote_around_them_stays(
    written: list[tuple[str, str]], added: str
) -> None:
    above, below = f"Above: {added}", f"Below: {added}"
    text = merge_part(proposal("b", "b"), "of a", f"{above}\n{proposal('a', 'a').body}{below}").body
    text, title = text.replace(part_start("b"), f"Between: {added}\n{part_start('b')}"), "of a"
    for delivery, words in written:
        made = merge_part(proposal(delivery, words), title, text)
        assert merge_part(proposal(delivery, words), title, made.body) == made, "once more, after a death"
        text, title = made.body, made.title
    assert title == "of a"
    assert text.startswith(above)
    assert text.endswith(below)
    assert f"Between: {added}\n" in text
    last = {"a": "a", "b": "b", **dict(written)}
    assert sorted(last, key=lambda name: text.index(marker(name))) == list(last)
    for name, words in last.items():
        assert (text.count(marker(name)), text.count(part_start(name))) == (1, 1)
        assert f"{part_start(name)}\n{words}".strip() in text


@pytest.mark.parametrize("theirs", [20_000, 40_000, 59_000, 62_000])
def test_a_table_that_has_no_room_is_cut_at_a_line_and_the_closing_words_and_what_others_wrote_stay(
    theirs: int,
) -> None:
    there = proposal("a", "x" * theirs, issue=1).body
    rows = "".join(f"| {n:04} | yes |\n" for n in range(4_000))
    made = merge_part(proposal("b", rows, issue=2), "of a", there).body
    assert len(made) <= FORGE_TEXT_CHARS
    assert made.startswith(there)
    assert issue_numbers(made) == (1, 2)
    mine = made.removeprefix(there)
    assert all(line in rows.splitlines() for line in mine.splitlines() if line.startswith("|"))
    assert ("cut here" in mine) == ("| 0001 " in mine) == (theirs < 60_000)
    more = made
    for name in "cdefghij":
        more = merge_part(proposal(name, rows, issue=ord(name)), "of a", more).body
    assert len(more) <= FORGE_TEXT_CHARS
    assert issue_numbers(more) == (1, 2, *map(ord, "cdefghij"))


def test_a_part_that_does_not_say_where_it_begins_goes_from_the_mark_before_it_to_its_own() -> None:
    there = proposal("a", "old", begun=False).body + proposal("b", "b", begun=False).body
    made = merge_part(proposal("a", "new", title="a, later"), "of a", there)
    assert made.body == proposal("a", "new").body + proposal("b", "b", begun=False).body
    assert made.title == "a, later", "the first part is its own"
    assert merge_part(proposal("b", "new"), "of a", there).title == "of a"


def test_of_ones_own_alone_only_the_part_is_written_anew_or_all_of_it_where_that_has_no_beginning() -> None:
    mine = proposal("a", "new")
    made = merge_part(mine, "by hand", f"Hers.\n\n{proposal('a', 'old').body}")
    assert (made.title, made.body) == ("of a", f"Hers.\n\n{mine.body.strip()}\n")
    assert merge_part(mine, "by hand", proposal("a", "old", begun=False).body) == mine
    assert merge_part(mine, "by hand", "no word of ours") == mine


PROCESSES = 4

SCRIPT = """
import json, pathlib, sys, time
from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.select import Forges
from perdure.models.errors import ForgeUnavailable

import github  # before the start, so that all start together

told = json.loads(pathlib.Path(sys.argv[1]).read_text())
forge = Forges.from_environment(told["environ"]).forge(told["url"])
proposal = Proposal(**told["proposal"])
here = pathlib.Path(told["here"])


def together(name, do):
    (here / f"{name}-{told['n']}").touch()
    while not (here / name).exists():
        time.sleep(0.001)
    while True:
        try:
            return do()
        except ForgeUnavailable:
            time.sleep(0.05)


pull = together("open", lambda: forge.open_or_update_pull(proposal)).pull_request.number
comment = together("comment", lambda: forge.write_status_comment(told["issue"], proposal.delivery, "Working on it."))
pathlib.Path(sys.argv[1]).write_text(json.dumps([pull, comment]))
"""


async def test_processes_that_begin_at_once_open_one_pull_request_and_one_comment(
    twin: TwinRepository, tmp_path: Path
) -> None:
    issue = twin.hub.add_issue("me/calc", "Add sub", "x")
    proposal = twin.proposal()
    told = {
        "environ": {"PERDURE_GITHUB_URL": twin.hub.url, "PERDURE_GITHUB_TOKEN": TOKEN},
        "url": f"{twin.hub.url}/me/calc.git",
        "proposal": {name: getattr(proposal, name) for name in proposal.__dataclass_fields__},
        "issue": issue,
        "here": str(tmp_path),
    }
    script, running = tmp_path / "race.py", []
    script.write_text(SCRIPT)
    with Path(os.devnull).open("r+b") as nothing:
        for n in range(PROCESSES):
            (given := tmp_path / f"{n}.json").write_text(json.dumps(told | {"n": n}))
            files, env = (nothing.fileno(), nothing.fileno(), 2), {"PATH": os.environ["PATH"]}
            running.append(fork(str(script), str(given), env=env, cwd=tmp_path, files=files))
    try:
        for moment in ("open", "comment"):
            while len(list(tmp_path.glob(f"{moment}-*"))) < PROCESSES:
                await asyncio.sleep(0.01)
            (tmp_path / moment).touch()
        assert [await asyncio.to_thread(one.wait, 60) for one in running] == [0] * PROCESSES
        answers = [json.loads((tmp_path / f"{n}.json").read_text()) for n in range(PROCESSES)]
    finally:
        for one in running:
            one.kill()
    (pull,) = twin.hub.pulls("me/calc")
    (comment,) = twin.hub.comments("me/calc", issue)
    assert {answer[0] for answer in answers} == {pull["number"]}
    assert comment["html_url"] in {answer[1] for answer in answers}
    assert comment["body"] == "<!-- perdure:status=d-1 -->\nWorking on it."

"""A step's first message shows where it is: the map of the repository, and how the tests went on the base."""

from __future__ import annotations

import json

from turn_fixtures import DELIVERY, Bench, vault

from perdure.adapters.agents.builtin.repository_map import MAP_FILE_BYTES
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.worker.turn.materials import map_material
from perdure.models.phases import Step


def opening(bench: Bench, call: int = -1) -> str:
    body = bench.rehearsal.calls[call].body
    return "\n".join(block["text"] for block in body["messages"][0]["content"])


async def test_a_plan_and_a_build_begin_with_a_map_and_the_tests_time_and_verdict_on_the_base(bench: Bench) -> None:
    for step in (Step.PLAN, Step.IMPLEMENT):
        await bench.take(bench.work(1, bench.prepared.checkpoint, step), run=str(step))
        said = opening(bench)
        assert '<data name="repository"' in said
        assert "  calc.py: add()" in said
        assert "  test_calc.py: AddTest(" in said
        tests = next(line for line in said.splitlines() if line.startswith("- ") and "unittest" in line)
        assert "(passed on main in " in tests
    await bench.take(bench.work(1, bench.prepared.checkpoint, Step.CLASSIFY), run="classify")
    assert '<data name="repository"' not in opening(bench)


async def test_a_turn_that_is_done_again_shows_the_same_bytes_and_is_not_paid_twice(bench: Bench) -> None:
    work = bench.work(1, bench.prepared.checkpoint)
    await bench.take(work)
    calls = len(bench.rehearsal.calls)
    vault(bench).git.execute("update-ref", "-d", f"refs/perdure/{DELIVERY}/run-1")
    (bench.host.home.tree(DELIVERY) / "calc.py").write_text("def other(): ...\n")
    other = bench.again()
    await bench.take(work, host=other)
    await other.close()
    assert len(bench.rehearsal.calls) == calls


async def test_the_map_is_of_the_checkpoint_and_shows_nothing_that_lies_beside_it(bench: Bench) -> None:
    tree = bench.host.home.tree(DELIVERY)
    (tree / ".env").write_text("SECRET=1")
    (tree / "later.py").write_text("def later(): ...")
    (tree / "away.py").symlink_to("/etc/passwd")
    found = map_material(vault(bench), bench.prepared.checkpoint, Step.PLAN)["repository"]
    assert "calc.py: add()" in found
    assert not any(word in found for word in ("later", ".env", "away"))


async def test_what_a_turn_wrote_is_in_the_next_steps_map_but_links_and_large_files_names_are_not(bench: Bench) -> None:
    line = next(line for line in bench.rehearsal.screenplay.lines if line.use and line.use[0].tool == "bash")
    large = f"python3 -c \"print('def large(): ...' + ' ' * {MAP_FILE_BYTES})\" > large.py"
    line.use[0].input["command"] = f"echo 'def new(): ...' > new.py; ln -s /etc/passwd away.py; {large}"
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    second = await bench.take(bench.work(2, first.checkpoint))
    found = map_material(vault(bench), second.checkpoint, Step.REVIEW)["repository"]
    assert "  new.py: new()" in found
    assert "large.py" in found
    assert "large()" not in found
    assert "away" not in found
    told = checkpoints.read_transcript(vault(bench), second.checkpoint)
    assert "new()" not in json.dumps(told[0]), "a conversation keeps the map that it began with"

"""What a command in the reduced sandbox must not be able to do either."""

from __future__ import annotations

import asyncio
import sys

import pytest

SECRET = "planted-secret-7d1f"


async def test_the_reduced_grade_keeps_files_keys_and_the_network_away(reduced, run, worktree, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    private = tmp_path / "private"
    private.write_text(SECRET)
    script = f"""
    cat {private} /etc/shadow ~/.ssh/* /proc/$PPID/environ
    for pid in /proc/[0-9]*; do cat $pid/environ; done 2>/dev/null
    echo x > {private}; echo x > {tmp_path}/new; echo x > /etc/x; kill -9 $PPID
    : >> /proc/self/oom_score_adj
    grep Cap /proc/self/status
    python3 - <<'END'
import socket
for family, kind in ((socket.AF_INET, 1), (socket.AF_INET6, 2), (socket.AF_NETLINK, 3)):
    try:
        socket.socket(family, kind)
        print("SOCKET")
    except OSError as error:
        print("refused", error.errno)
END
    echo mine > mine"""
    finished, said = await run(reduced, script)
    assert finished.exit_code == 0, said
    assert SECRET not in said
    assert "root:" not in said
    assert private.read_text() == SECRET
    assert not (tmp_path / "new").exists()
    assert said.count("refused 97") == 3
    assert "CapEff:\t0000000000000000" in said
    assert (worktree / "mine").exists()


async def test_the_reduced_grade_keeps_a_read_only_worktree(reduced, run, worktree):
    finished, _ = await run(reduced, "echo x > new", writable=False)
    assert finished.exit_code == 1
    assert not (worktree / "new").exists()


@pytest.mark.parametrize("grade", ["reduced", "off"])
async def test_nothing_is_left_of_a_private_home_however_deep_or_closed(grade, request, run, home):
    script = """cd; mkdir closed; touch closed/file; chmod 0 closed
    python3 -c 'import os; [(os.mkdir("d"), os.chdir("d")) for n in range(1500)]; print("done")'"""
    finished, said = await run(request.getfixturevalue(grade), script)
    assert (finished.exit_code, said) == (0, "done\n")
    assert list((home.root / "sandbox/tmp").iterdir()) == []


@pytest.mark.parametrize(
    "place", ["node_modules", "web/node_modules", "node_modules/.cache", "node_modules/.vite/deps"]
)
async def test_a_link_in_place_of_what_setup_made_opens_nothing_to_tests(reduced, run, worktree, tmp_path, place):
    outside, clean = tmp_path / "outside", tmp_path / "clean"
    outside.mkdir()
    (outside / "key").write_text(SECRET)
    clean.mkdir()
    (worktree / place).mkdir(parents=True)
    top = place.partition("/")[0]
    for gone in dict.fromkeys((place, top)):
        await run(reduced, f"mkdir -p {top}; rm -rf {gone}; ln -s {outside} {gone}; mkdir -p {outside}/node_modules")
        script = f"cat {outside}/key {place}/key; echo planted > {outside}/new; echo planted > {place}/new"
        _, said = await run(reduced, script, source=clean, shared=("node_modules", "web/node_modules"))
        assert SECRET not in said
        assert [one.name for one in outside.iterdir()] == ["key"]


async def test_nor_does_a_link_that_somebody_puts_there_at_that_very_moment(reduced, run, worktree, tmp_path):
    outside, clean = tmp_path / "outside", tmp_path / "clean"
    outside.mkdir()
    (outside / "key").write_text(SECRET)
    clean.mkdir()
    (worktree / "away").mkdir()
    (worktree / "link").symlink_to(outside)
    # Two names that are exchanged in one step (RENAME_EXCHANGE), thousands of times a second.
    exchange = "import ctypes\nlibc = ctypes.CDLL(None)\nwhile True: libc.renameat2(-100, b'away', -100, b'link', 2)"
    swapping = await asyncio.create_subprocess_exec(sys.executable, "-c", exchange, cwd=worktree)
    try:
        for _ in range(25):
            _, said = await run(reduced, f"cat {outside}/key", source=clean, shared=("away", "link"))
            assert SECRET not in said
    finally:
        swapping.kill()
        await swapping.wait()

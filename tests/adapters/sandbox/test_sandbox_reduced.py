"""What a command in the reduced sandbox must not be able to do either."""

from __future__ import annotations

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

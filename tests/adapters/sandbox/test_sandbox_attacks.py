"""Attacks of a command on its sandbox fail in each grade, as far as the grade promises it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.system.home import Home

SECRET = "planted-secret-7d1f"


async def test_the_hosts_password_file_is_not_there_and_the_user_is_nobody(full, run):
    finished, said = await run(full, "cat /etc/shadow; id -u; id -un; grep -c . /etc/passwd")
    assert finished.exit_code == 0
    assert "root:" not in said
    assert said.split()[-3:] == ["65534", "agent", "1"]


async def test_planted_credentials_are_nowhere_to_be_found(home, worktree, tmp_path, run, full):
    owner = tmp_path / "owner"
    for name in (".ssh/id_rsa", ".aws/credentials", ".netrc", ".npmrc", ".git-credentials", ".cargo/credentials.toml"):
        (owner / name).parent.mkdir(parents=True, exist_ok=True)
        (owner / name).write_text(SECRET)
    for name in (".cargo/bin/tool", ".ssh/bin/tool", ".local/bin/tool"):
        (owner / name).parent.mkdir(parents=True, exist_ok=True)
        (owner / name).write_text("#!/bin/sh\necho ran\n")
        (owner / name).chmod(0o755)
    path = f"{owner}/.cargo/bin:{owner}/.ssh/bin:{owner}/.local/bin:{owner}:/usr/bin:/bin"
    binds = compute_binds(worktree, path, owner)
    script = f"tool; find {owner} -type f | sort; grep -rs {SECRET} {owner} /root /home /run /tmp; true"
    finished, said = await run(BubblewrapSandbox(home, binds), script)
    assert finished.exit_code == 0
    assert said.split() == ["ran", f"{owner}/.cargo/bin/tool", f"{owner}/.local/bin/tool"]


async def test_no_environment_of_any_process_holds_the_workers_key(full, run, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    _, said = await run(full, "ls -A /proc/1; cat /proc/[0-9]*/environ /proc/*/cmdline; env")
    assert "HOME=/home/agent" in said
    assert SECRET not in said


async def test_the_hosts_processes_are_not_visible(full, run):
    _, said = await run(full, "ls -d /proc/[0-9]* | wc -l; ls -A /proc/1")
    assert int(said) < 10


async def test_tcp_udp_and_the_hosts_unix_sockets_cannot_be_reached(full, run, tmp_path):
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(tmp_path / "s"))
    unix.listen()
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0perdure-test-{os.getpid()}")
    abstract.listen()
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    udp.settimeout(0.2)
    script = f"""python3 - <<'END'
import socket
def attempt(name, act):
    try:
        act()
        print(name, "REACHED")
    except OSError as error:
        print(name, type(error).__name__)
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", {tcp.getsockname()[1]}), 2))
attempt("outside", lambda: socket.create_connection(("192.0.2.1", 443), 2))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
attempt("unix", lambda: socket.socket(socket.AF_UNIX).connect("{tmp_path}/s"))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0perdure-test-{os.getpid()}"))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {udp.getsockname()[1]}))
END"""
    try:
        finished, said = await run(full, script)
        assert finished.exit_code == 0, said
        assert "REACHED" not in said
        assert len(said.splitlines()) == 5
        with pytest.raises(TimeoutError):
            udp.recv(1)
    finally:
        for one in (unix, abstract, tcp, udp):
            one.close()


async def test_a_server_inside_can_be_reached_from_inside(full, run):
    script = """python3 - <<'END'
import http.server, threading, urllib.request
server = http.server.HTTPServer(("127.0.0.1", 9107), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen("http://127.0.0.1:9107/", timeout=10).status)
END"""
    finished, said = await run(full, script)
    assert finished.exit_code == 0, said
    assert "200" in said.split()


async def test_nothing_outside_of_the_worktree_can_be_written(full, run, tmp_path, worktree):
    (tmp_path / "outside").write_text("before")
    script = (
        f"for f in {tmp_path}/outside {tmp_path}/new /usr/x /etc/x /x /dev/x ; do echo x > $f; done; echo ok > mine"
    )
    finished, said = await run(full, script)
    assert finished.exit_code == 0
    assert (worktree / "mine").read_text() == "ok\n"
    assert (tmp_path / "outside").read_text() == "before"
    assert not (tmp_path / "new").exists()
    assert said.count("Read-only file system") == 4, said


async def test_no_kernel_setting_can_be_opened_for_writing(full, run):
    """Only opened, never written: if this fails as root, the settings are the host's."""
    script = """python3 - <<'END'
import asyncio
import os
tried = 0
for top in sorted(os.listdir("/proc")):
    if top.isdigit() or os.path.islink(f"/proc/{top}") or top == "sysvipc":
        continue
    files = [os.path.join(d, f) for d, _, fs in os.walk(f"/proc/{top}") for f in fs] or [f"/proc/{top}"]
    for file in files:
        tried += 1
        try:
            os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))
            print("WRITABLE", file)
        except OSError:
            pass
print("tried", tried > 100)
END"""
    _, said = await run(full, script)
    assert said == "tried True\n"


async def test_private_temporary_directories_are_limited_in_size(full, run):
    _, said = await run(full, "for d in /tmp /dev/shm /run $HOME; do df --output=size -k $d | tail -1; done")
    assert [int(size) for size in said.split()] == [1048576, 1048576, 65536, 1048576]


async def test_there_are_no_capabilities_and_no_way_to_get_any(full, run):
    _, said = await run(
        full, "grep Cap /proc/self/status; unshare -U true && echo NESTED; mount -t tmpfs x /tmp && echo MOUNTED"
    )
    assert said.count("0000000000000000") == 5
    assert "NESTED" not in said
    assert "MOUNTED" not in said


async def test_git_metadata_and_installed_dependencies_are_read_only(full, run, worktree):
    for name in (".venv/lib", "node_modules/x", "packages/web/node_modules/y"):
        (worktree / name).mkdir(parents=True)
    (worktree / ".git").write_text("gitdir: /nowhere\n")
    script = """
    echo evil > .git; rm -f .git; mv .git other; echo x > .venv/lib/pytest.py; rm -rf .venv; mv node_modules gone
    ln -sfn /tmp .venv; echo x > packages/web/node_modules/y/z; touch mine"""
    finished, said = await run(full, script, shared=("packages/web/node_modules",))
    assert finished.exit_code == 0
    assert (worktree / ".git").read_text() == "gitdir: /nowhere\n"
    assert (worktree / ".venv/lib").is_dir()
    assert not list((worktree / ".venv/lib").iterdir())
    assert (worktree / "node_modules/x").is_dir()
    assert not (worktree / "packages/web/node_modules/y/z").exists()
    assert (worktree / "mine").exists(), said


async def test_setup_may_write_dependencies_but_not_git_metadata(full, run, worktree):
    (worktree / ".venv").mkdir()
    (worktree / ".git").write_text("gitdir: /nowhere\n")
    finished, _ = await run(
        full, "touch .venv/made; mkdir node_modules; ! touch .git && ! cat /etc/shadow", network=True
    )
    assert finished.exit_code == 0
    assert (worktree / ".venv/made").exists()


async def test_a_link_in_the_place_of_node_modules_does_not_mount_what_it_points_to(full, run, worktree, tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private/key").write_text(SECRET)
    for link in ("node_modules", ".venv", "packages"):
        (worktree / link).symlink_to(tmp_path / "private")
    (tmp_path / "private/node_modules").mkdir()
    _, said = await run(
        full, "cat node_modules/key .venv/key packages/key", shared=("packages/node_modules", "../private")
    )
    assert SECRET not in said


async def test_a_read_only_worktree_cannot_be_written(full, run, worktree):
    (worktree / "file").write_text("before")
    finished, said = await run(full, "echo x > file; echo x > new; cat file", writable=False)
    assert finished.exit_code == 0
    assert said.endswith("before")
    assert not (worktree / "new").exists()


async def test_a_virtual_environment_made_by_an_agent_does_not_widen_what_is_shown(home, run, worktree, tmp_path, full):
    private = tmp_path / "owner/proj2/bin"
    private.mkdir(parents=True)
    (private / "python").write_text("#!/bin/sh\n")
    (private / "key").write_text(SECRET)
    evil = worktree / "evil"
    (evil / "bin").mkdir(parents=True)
    (evil / "pyvenv.cfg").write_text(f"home = {private}\n")
    (evil / "bin/python3").symlink_to(private / "python")
    binds = compute_binds(worktree, "/usr/bin:/bin", tmp_path / "owner")
    assert not [prefix for prefix in binds.prefixes if str(tmp_path) in prefix]
    _, said = await run(BubblewrapSandbox(home, binds), f"cat {private}/key")
    assert SECRET not in said


async def test_the_lock_is_out_of_a_commands_reach(full, run, tmp_path):
    """No descriptor of any process inside is the lock: it could be unlocked through pidfd_getfd, or written to."""
    lock = tmp_path / "lock"
    script = "for fd in /proc/[0-9]*/fd/*; do readlink $fd; done | sort -u; ls /proc | grep -c '^[0-9]'"
    finished, said = await run(full, script, lock=lock)
    assert finished.exit_code == 0
    assert f"{lock}\n" not in said
    assert str(tmp_path / "output") in said


@pytest.mark.skipif(not shutil.which("git"), reason="no git")
async def test_git_can_be_read_but_not_written(full, run, tmp_path):
    vault, tree = tmp_path / "vault.git", tmp_path / "checkout"
    seed = tmp_path / "seed"
    clean = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(tmp_path)}
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for argv in (
        ["git", "init", "-q", "-b", "main", str(seed)],
        ["git", "-C", str(seed), *identity, "commit", "-q", "--allow-empty", "-m", "first"],
        ["git", "clone", "-q", "--bare", str(seed), str(vault)],
        ["git", "-C", str(vault), "worktree", "add", "-q", "--detach", str(tree)],
    ):
        subprocess.run(argv, check=True, env=clean, timeout=30, capture_output=True)
    fields = {"worktree": tree, "git_dir": vault}
    finished, said = await run(full, "git log --format=%s && git status --short && touch x", **fields)
    assert (finished.exit_code, said) == (0, "first\n")
    finished, said = await run(full, "git add x", **fields)
    assert finished.exit_code == 128
    assert "Read-only file system" in said


def test_a_sandbox_is_not_started_from_another_thread(full, run):
    """Parent-death signals follow the spawning thread: the command would die with it."""
    raised: list[BaseException] = []

    def elsewhere() -> None:
        try:
            asyncio.run(run(full, "true"))
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(20)
    assert "main thread" in str(raised[0])


def test_the_home_of_perdure_is_never_shown(worktree: Path, tmp_path: Path):
    home = Home(tmp_path / "perdure")
    (home.root / "bin").mkdir(parents=True)
    (home.root / "pyvenv.cfg").touch()
    binds = compute_binds(worktree, f"{home.root}/bin:/usr/bin", Path.home(), perdure_home=home.root)
    assert binds.path == ("/usr/bin",)
    assert binds.dropped[0].entry == f"{home.root}/bin"


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


TRACES = """
import ctypes, errno, os, sys
libc, attach, detach = ctypes.CDLL(None, use_errno=True), 16, 17
for pid in (os.getppid(), 1):
    allowed = libc.ptrace(attach, pid, 0, 0) == 0
    if allowed:
        os.waitpid(pid, 0x40000000)
        libc.ptrace(detach, pid, 0, 0)
    print("traced" if allowed else errno.errorcode[ctypes.get_errno()])
with open(f"/proc/{os.getpid()}/maps") as maps:
    address = int(maps.readline().split("-")[0], 16)
buffer = ctypes.create_string_buffer(8)
pair = (ctypes.c_void_p * 2)(ctypes.cast(buffer, ctypes.c_void_p), 8)
other = (ctypes.c_void_p * 2)(address, 8)
read = libc.process_vm_readv(os.getpid(), pair, 1, other, 1, 0)
print("read" if read == 8 else errno.errorcode[ctypes.get_errno()])
for path in ("/proc/1/mem", "/proc/1/task/1/mem", "/proc/1/fd", "/proc/1/x"):
    try:
        print("opened", os.open(path, os.O_RDONLY if path.endswith("fd") else os.O_RDWR | os.O_CREAT))
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


async def test_a_test_traces_neither_its_runner_nor_the_first_process_unless_the_owner_lets_it(full, run, worktree):
    (worktree / "traces.py").write_text(TRACES)
    command = "/usr/bin/python3 traces.py & wait"
    _, said = await run(full, command, trace=False)
    assert said.split()[:3] == ["EPERM", "EPERM", "EPERM"], said
    assert "opened" not in said
    _, said = await run(full, command)
    assert (said.split()[0], said.split()[2]) == ("traced", "read"), said
    assert "opened" not in said

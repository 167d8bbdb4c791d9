"""The scanner finds what is planted, wherever it is planted: otherwise its silence would mean nothing."""

from __future__ import annotations

import base64
import gzip
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.repositories import git
from tests.secret_watch import Hit, SecretWatch
from tests.waiting import patient

SECRET = "ghp_Planted0123456789abcdefghij/+"


def plain(place: Path) -> None:
    (place / "log").write_text(f"cloning https://x:{SECRET}@host/")


def quoted(place: Path) -> None:
    (place / "log").write_text("?token=ghp_Planted0123456789abcdefghij%2F%2B&x")


def link(place: Path) -> None:
    (place / "link").symlink_to(f"/tmp/{SECRET}")


def basic(place: Path) -> None:
    header = base64.b64encode(f"x-access-token:{SECRET}".encode()).decode()
    (place / "log").write_text(f"Authorization: Basic {header}")


def inside_base64(place: Path) -> None:
    (place / "log").write_bytes(base64.b64encode(b"{'a': '" + SECRET.encode() + b"'}"))


def packed_file(place: Path) -> None:
    (place / "log.gz").write_bytes(gzip.compress(SECRET.encode()))


def loose_object(place: Path) -> None:
    git(place, "init", "-q", "--bare", "vault.git")
    git(place / "vault.git", "hash-object", "-w", "--stdin", stdin=f"x {SECRET} y")


def packed_object(place: Path) -> None:
    git(place, "init", "-q", "--bare", "vault.git")
    vault = place / "vault.git"
    blob = git(vault, "hash-object", "-w", "--stdin", stdin=f"x {SECRET} y" * 50)
    git(vault, "update-ref", "refs/perdure/x", blob)
    git(vault, "repack", "-adq")
    assert not list((vault / "objects").glob("??"))


def database(place: Path) -> None:
    connection = sqlite3.connect(place / "temporal.db")
    connection.execute("CREATE TABLE history (id INT, data BLOB)")
    text = ("." * 3000 + SECRET).encode() * 9  # in pieces on several pages, still in the write-ahead log
    connection.execute("PRAGMA journal_mode=wal")
    connection.execute("INSERT INTO history VALUES (1, ?)", (text,))
    connection.commit()
    os.link(place / "temporal.db", place / "kept.db")
    connection.close()


@pytest.mark.parametrize(
    "plant",
    [plain, quoted, basic, inside_base64, link, packed_file, loose_object, packed_object, database],
    ids=lambda plant: plant.__name__,
)
def test_what_is_planted_is_found_and_not_told(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    watch = SecretWatch([SECRET])
    assert watch.scan(tmp_path) == []
    plant(tmp_path)
    assert watch.scan(tmp_path)
    assert SECRET not in repr(watch.found)


def sleeper(*args: str, env: dict[str, str] | None = None, new_session: bool = False) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", *args]
    variables = {"PATH": os.environ["PATH"], **(env or {})}
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, start_new_session=new_session)


def until(condition: Callable[[], object]) -> bool:
    end = time.monotonic() + patient(30)
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def test_a_child_with_the_secret_in_its_environment_or_command_line_is_found() -> None:
    for args, env, where in (((SECRET,), {}, "command line"), ((), {"TOKEN": SECRET}, "environment")):
        with SecretWatch([SECRET]) as watch, sleeper(*args, env=env) as child:
            assert until(lambda: watch.found)
            child.kill()
        assert [hit.where.partition(" of ")[0] for hit in watch.found] == [where]


def test_who_was_given_the_secret_is_left_out_and_its_children_are_not() -> None:
    command = "import subprocess, sys; subprocess.run(['cat'], env={'MINE': sys.argv[1][::-1]}); sys.exit()"
    watch = SecretWatch([SECRET], carriers=("a-worker",))
    env = {"PATH": os.environ["PATH"], "TOKEN": SECRET}
    with (
        watch,
        subprocess.Popen([sys.executable, "-c", command, SECRET[::-1], "a-worker"], env=env, stdin=subprocess.PIPE),
    ):
        assert until(lambda: watch.found)
    assert watch.found == [Hit("environment of cat", "as it is")]


def test_a_grandchild_whose_parent_is_gone_is_still_looked_at(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"(sleep 1; TOKEN={SECRET} exec sleep 60) & echo $! >{tmp_path}/pid; sleep 0.3\n")
    with SecretWatch([SECRET]) as watch:
        subprocess.run(["setsid", "sh", str(script)], env={"PATH": os.environ["PATH"]}, timeout=60)
        found = until(lambda: watch.found)
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert found


def test_a_child_that_has_not_begun_its_own_program_is_not_taken_for_a_leak() -> None:
    code = "import os, sys; (os.fork() or True) and print('ready', flush=True); sys.stdin.read()"
    env = {"PATH": os.environ["PATH"], "TOKEN": SECRET}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], env=env, **pipes) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        watch = SecretWatch([SECRET], roots=(worker.pid,), leave_out={worker.pid})
        with watch:
            assert until(lambda: watch.seen)
            time.sleep(0.1)
    assert watch.found == []

"""A program of ours tells nobody what it was given; and the scanner finds what is planted."""

from __future__ import annotations

import base64
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from perdure import secrets
from perdure.adapters.agents.builtin import model
from perdure.adapters.forges.github import site
from perdure.adapters.notify import addresses
from tests.repositories import git
from tests.secret_watch import Hit, SecretWatch, hits, recording
from tests.waiting import patient

SECRET = "s3cret-of-the-owner"
ROOT = Path(__file__).parents[1]

PROGRAM = """
import json, os, subprocess, sys
from perdure import secrets
secrets.take()
inherited = subprocess.run(["env"], capture_output=True, text=True).stdout
print(json.dumps({"known": secrets.environment(), "inherited": inherited}), flush=True)
sys.stdin.read()
"""


def program(code: str, *, under: Sequence[str] = (), env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "GH_TOKEN": SECRET, "ANTHROPIC_API_KEY": SECRET}
    command = [*under, sys.executable, "-c", code]
    return subprocess.Popen(
        command, env={**given, "A": "b", **(env or {})}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_what_a_program_was_started_with_is_known_to_it_and_shown_to_nobody() -> None:
    with program(PROGRAM) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        shown = Path(f"/proc/{process.pid}/environ").read_bytes()
        process.kill()
    assert (told["known"]["GH_TOKEN"], told["known"]["ANTHROPIC_API_KEY"], told["known"]["A"]) == (SECRET, SECRET, "b")
    assert "A=b" in told["inherited"]
    assert b"A=b" in shown
    assert SECRET not in told["inherited"]
    assert SECRET.encode() not in shown


def test_a_child_of_ours_gets_them_on_a_pipe_and_never_in_its_environment(tmp_path: Path) -> None:
    first = f"""
import os, subprocess, sys
from perdure import secrets
secrets.take()
with secrets.handed_over(secrets.environment()) as (env, pipe):
    child = subprocess.Popen([{str(tmp_path / "shim")!r}], env=env, pass_fds=[pipe])
sys.exit(child.wait())
"""
    (tmp_path / "second.py").write_text(PROGRAM)
    shims = recording(tmp_path / "seen", ["env"])
    (tmp_path / "shim").write_text(
        f"#!/bin/sh\ncat /proc/$$/environ >{tmp_path}/seen/shim\nexec {sys.executable} {tmp_path}/second.py\n"
    )
    (tmp_path / "shim").chmod(0o755)
    with program(first, env={"PATH": f"{shims}:{os.environ['PATH']}"}) as process:
        out, _ = process.communicate("", timeout=60)
    assert json.loads(out)["known"]["GH_TOKEN"] == SECRET
    found = SecretWatch([SECRET]).scan(tmp_path / "seen")
    assert found == [], hits(found)
    assert {path.name.partition(".")[0] for path in (tmp_path / "seen").glob("*") if path.is_file()} == {"env", "shim"}


WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
"""Root's rights let it look into anything: as a user like any other."""


@pytest.mark.parametrize("what", ["environ", "mem", "fd/0"])
def test_another_process_of_the_same_user_cannot_look_into_ours(what: str) -> None:
    look = f"import os, sys; os.open(f'/proc/{{sys.argv[1]}}/{what}', os.O_RDONLY)"
    seen = {}
    for name, code in (("ours", PROGRAM), ("plain", PROGRAM.replace("secrets.take()", ""))):
        with program(code, under=WITHOUT_RIGHTS) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            looked = subprocess.run(
                [*WITHOUT_RIGHTS, sys.executable, "-c", look, str(process.pid)], capture_output=True
            )
            seen[name] = looked.returncode == 0
            process.kill()
    assert seen == {"ours": False, "plain": True}


def test_a_crash_writes_no_memory_to_a_file() -> None:
    code = "import os, resource, signal\nfrom perdure import secrets\nsecrets.take()\n"
    code += "print(resource.getrlimit(resource.RLIMIT_CORE), flush=True)\nos.kill(os.getpid(), signal.SIGABRT)"
    with program(code) as process:
        out, _ = process.communicate("", timeout=60)
    assert (process.returncode, out.strip()) == (-signal.SIGABRT, "(0, 0)")


def test_every_variable_that_an_adapter_takes_for_a_secret_is_one() -> None:
    theirs = {*model.KEY_VARIABLES, model.HEADERS_VARIABLE, *site.SECRET_VARIABLES, *addresses.SECRET_VARIABLES}
    assert theirs <= secrets.NAMES


@pytest.mark.parametrize("arguments", ["doctor", "deliver x --repo .", "worker"])
def test_no_program_that_a_command_starts_gets_a_key_or_token(arguments: str, tmp_path: Path) -> None:
    shims = recording(tmp_path / "seen", ["git", "env"])
    given = dict.fromkeys(secrets.NAMES - {"TEMPORAL_TLS_CLIENT_KEY_DATA", "PERDURE_GITHUB_APP_KEY"}, SECRET)
    env = given | {"PATH": f"{shims}:{os.environ['PATH']}", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    env |= {"PERDURE_HOME": str(tmp_path / "home"), "TEMPORAL_ADDRESS": "127.0.0.1:1", "PERDURE_WEBHOOK_SECRET": ""}
    command = [sys.executable, "-m", "perdure.cli", *arguments.split()]
    subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=90, stdin=subprocess.DEVNULL)
    assert list((tmp_path / "seen").glob("git.*")), "no git was started"
    found = SecretWatch([SECRET]).scan(tmp_path / "seen")
    assert found == [], hits(found)


PLANTED = "ghp_Planted0123456789abcdefghij/+"


def plain(place: Path) -> None:
    (place / "log").write_text(f"cloning https://x:{PLANTED}@host/")


def quoted(place: Path) -> None:
    (place / "log").write_text("?token=ghp_Planted0123456789abcdefghij%2F%2B&x")


def link(place: Path) -> None:
    (place / "link").symlink_to(f"/tmp/{PLANTED}")


def basic(place: Path) -> None:
    header = base64.b64encode(f"x-access-token:{PLANTED}".encode()).decode()
    (place / "log").write_text(f"Authorization: Basic {header}")


def inside_base64(place: Path) -> None:
    (place / "log").write_bytes(base64.b64encode(b"{'a': '" + PLANTED.encode() + b"'}"))


def packed_file(place: Path) -> None:
    (place / "log.gz").write_bytes(gzip.compress(PLANTED.encode()))


def loose_object(place: Path) -> None:
    git(place, "init", "-q", "--bare", "vault.git")
    git(place / "vault.git", "hash-object", "-w", "--stdin", stdin=f"x {PLANTED} y")


def packed_object(place: Path) -> None:
    git(place, "init", "-q", "--bare", "vault.git")
    vault = place / "vault.git"
    blob = git(vault, "hash-object", "-w", "--stdin", stdin=f"x {PLANTED} y" * 50)
    git(vault, "update-ref", "refs/perdure/x", blob)
    git(vault, "repack", "-adq")
    assert not list((vault / "objects").glob("??"))


def database(place: Path) -> None:
    connection = sqlite3.connect(place / "temporal.db")
    connection.execute("CREATE TABLE history (id INT, data BLOB)")
    text = ("." * 3000 + PLANTED).encode() * 9  # in pieces on several pages, still in the write-ahead log
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
    watch = SecretWatch([PLANTED])
    assert watch.scan(tmp_path) == []
    plant(tmp_path)
    assert watch.scan(tmp_path)
    assert PLANTED not in repr(watch.found)


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
    for args, env, where in (((PLANTED,), {}, "command line"), ((), {"TOKEN": PLANTED}, "environment")):
        with SecretWatch([PLANTED]) as watch, sleeper(*args, env=env) as child:
            assert until(lambda: watch.found)
            child.kill()
        assert [hit.where.partition(" of ")[0] for hit in watch.found] == [where]


def test_who_was_given_the_secret_is_left_out_and_its_children_are_not() -> None:
    command = "import subprocess, sys; subprocess.run(['cat'], env={'MINE': sys.argv[1][::-1]}); sys.exit()"
    watch = SecretWatch([PLANTED], carriers=("a-worker",))
    env = {"PATH": os.environ["PATH"], "TOKEN": PLANTED}
    with (
        watch,
        subprocess.Popen([sys.executable, "-c", command, PLANTED[::-1], "a-worker"], env=env, stdin=subprocess.PIPE),
    ):
        assert until(lambda: watch.found)
    assert watch.found == [Hit("environment of cat", "as it is")]


def test_a_grandchild_whose_parent_is_gone_is_still_looked_at(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"(sleep 1; TOKEN={PLANTED} exec sleep 60) & echo $! >{tmp_path}/pid; sleep 0.3\n")
    with SecretWatch([PLANTED]) as watch:
        subprocess.run(["setsid", "sh", str(script)], env={"PATH": os.environ["PATH"]}, timeout=60)
        found = until(lambda: watch.found)
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert found


def test_a_child_that_has_not_begun_its_own_program_is_not_taken_for_a_leak() -> None:
    code = "import os, sys; (os.fork() or True) and print('ready', flush=True); sys.stdin.read()"
    env = {"PATH": os.environ["PATH"], "TOKEN": PLANTED}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], env=env, **pipes) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        watch = SecretWatch([PLANTED], roots=(worker.pid,), leave_out={worker.pid})
        with watch:
            assert until(lambda: watch.seen)
            time.sleep(0.1)
    assert watch.found == []

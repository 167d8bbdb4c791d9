"""A program of ours tells nobody what it was given: no child, no other process, no file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from perdure import secrets
from perdure.adapters.agents.builtin import model
from perdure.adapters.forges.github import site
from perdure.adapters.notify import addresses
from tests.secret_watch import SecretWatch, hits, recording

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

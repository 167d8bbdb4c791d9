"""The twin's git over HTTP, asked by the real git."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from aiohttp import ClientSession, web

from tests.twins.github import smart_http
from tests.twins.github.smart_http import Cut, Moment, Moved, Refusal, SmartHTTP, Visit, protect
from tests.waiting import patient

PERSON = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    **{f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}
TOKEN = "s3cret"


@dataclass
class Door:
    """Who may do what, for one test: ada may push to me/calc and everybody may read it; me/secret is private."""

    root: Path
    url: str = ""
    visits: list[Visit] = field(default_factory=list)
    calls: list[tuple[str, str, str, int]] = field(default_factory=list)
    disturb: Callable[[Visit, Moment], web.Response | Cut | None] = lambda visit, moment: None

    def allowed(self, visit: Visit) -> Path | Refusal | Moved:
        self.visits.append(visit)
        if visit.password not in (None, TOKEN):
            return smart_http.BAD_CREDENTIALS
        if visit.repository == "me/old":
            return Moved("me/calc")
        if visit.password is None and (visit.write or visit.repository != "me/calc"):
            return smart_http.ASK
        place = self.root / f"{visit.repository}.git"
        if not place.exists():
            return smart_http.NOT_FOUND
        return smart_http.NO_WRITE if visit.write and visit.username != "ada" else place

    async def disturbed(self, visit: Visit, moment: Moment) -> web.Response | Cut | None:
        return self.disturb(visit, moment)

    def address(self, who: str = "ada", repository: str = "me/calc.git", token: str = TOKEN) -> str:
        return f"{self.url.replace('://', f'://{who}:{token}@')}/{repository}"


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    door = Door(tmp_path / "repositories")
    for name in ("calc", "secret"):
        make(door.root / "me" / f"{name}.git", tmp_path / f"seed-{name}")
    app = web.Application()
    log = door.calls.append
    SmartHTTP(door.allowed, disturb=door.disturbed, log=lambda *call: log(call)).add_routes(app)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    door.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield door
    await runner.cleanup()
    assert not backends(), "a process was left behind"


def make(at: Path, seed: Path) -> None:
    seed.mkdir(parents=True)
    (seed / "a.txt").write_text("one\n")
    for args in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(seed), *args], env=PERSON, check=True, timeout=60)
    subprocess.run(["git", "clone", "-q", "--bare", str(seed), str(at)], env=PERSON, check=True, timeout=60)


def descendants() -> dict[psutil.Process, str]:
    """What this process started and what still runs, with its command line."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found[child] = " ".join(child.cmdline())
    return found


def backends() -> list[str]:
    """Git servers among them."""
    return [line for line in descendants().values() if "http-backend" in line or "-pack" in line]


async def git(where: Path, *args: str) -> tuple[int, str]:
    """Exit code and what it said on stderr and stdout."""
    process = await asyncio.create_subprocess_exec(
        *("git", "-C", str(where), *args), env=PERSON, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(patient(60)):
        said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def cloned(door: Door, tmp_path: Path) -> Path:
    code, said = await git(tmp_path, "clone", "-q", door.address(), "work")
    assert code == 0, said
    return tmp_path / "work"


async def committed(work: Path, size: int = 10) -> str:
    (work / "b.bin").write_bytes(os.urandom(size))
    assert (await git(work, "add", "-A"))[0] == 0
    assert (await git(work, "commit", "-q", "-m", "second"))[0] == 0
    return (await git(work, "rev-parse", "HEAD"))[1].strip()


def tip(door: Door, branch: str = "main") -> str:
    at = ["git", "-C", str(door.root / "me/calc.git"), "rev-parse", "--verify", "-q", f"refs/heads/{branch}"]
    return subprocess.run(at, capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.mark.parametrize("version", ["0", "1", "2"])
async def test_a_repository_is_cloned_without_a_name_in_every_protocol(
    door: Door, tmp_path: Path, version: str
) -> None:
    for form in ("calc", "calc.git"):
        args = ("-c", f"protocol.version={version}", "clone", "-q", f"{door.url}/me/{form}", f"out-{form}")
        code, said = await git(tmp_path, *args)
        assert (code, (tmp_path / f"out-{form}" / "a.txt").read_text()) == (0, "one\n"), said


@pytest.mark.parametrize("size", [10, 12_000_000])
async def test_a_push_of_any_size_arrives(door: Door, tmp_path: Path, size: int) -> None:
    work = await cloned(door, tmp_path)
    sha = await committed(work, size)
    code, said = await git(work, "push", "-q", "origin", "HEAD:refs/heads/x/y")
    assert (code, tip(door, "x/y")) == (0, sha), said
    code, said = await git(tmp_path, "clone", "-q", "-b", "x/y", f"{door.url}/me/calc", "again")
    assert (tmp_path / "again/b.bin").stat().st_size == size, said
    assert not backends()


async def test_a_packed_request_body_is_unpacked(door: Door) -> None:
    wants = b"0014command=ls-refs\n00010000"
    for body, encoding in ((wants, {}), (gzip.compress(wants), {"Content-Encoding": "gzip"})):
        headers = {"Content-Type": "application/x-git-upload-pack-request", "Git-Protocol": "version=2", **encoding}
        async with ClientSession() as session:
            url = f"{door.url}/me/calc.git/git-upload-pack"
            async with session.post(url, data=body, headers=headers) as reply:
                assert (reply.status, tip(door).encode() in await reply.read()) == (200, True)


async def test_who_may_not_is_told_in_githubs_words(door: Door, tmp_path: Path) -> None:
    nobody = f"{door.url}/me/calc.git"
    for address, write, words in (
        (f"{door.url}/me/secret", False, "could not read Username"),
        (door.address(repository="me/secret", token="wrong"), False, "remote: Invalid username or token."),
        (door.address(repository="me/gone"), False, "remote: Repository not found."),
        (nobody, True, "could not read Username"),
        (door.address("eve"), True, "remote: Write access to repository not granted."),
    ):
        where = door.root / "me/calc.git"
        args = ("push", address, "main:refs/heads/new") if write else ("ls-remote", address)
        code, said = await git(where, *args)
        assert code == 128, said
        assert words in said
    assert tip(door, "new") == ""
    assert all(TOKEN not in repr(visit) for visit in door.visits)


async def test_a_renamed_repository_answers_with_a_redirect(door: Door, tmp_path: Path) -> None:
    code, said = await git(door.root / "me/calc.git", "push", door.address(repository="me/old"), "main:refs/heads/new")
    assert (code, tip(door, "new")) == (0, tip(door)), said
    assert f"warning: redirecting to {door.url}/me/calc.git/" in said


async def test_protected_branches_are_refused_and_others_are_not(door: Door, tmp_path: Path) -> None:
    work = await cloned(door, tmp_path)
    sha = await committed(work)
    for rules, code_word in ((False, "GH006: Protected branch update failed for"), (True, "GH013: Repository rule")):
        protect(door.root / "me/calc.git", "main", "perdure/**", rules=rules)
        code, said = await git(work, "push", "origin", "HEAD:main", "HEAD:refs/heads/perdure/x", "HEAD:refs/heads/ok")
        assert code == 1
        assert (f"remote: error: {code_word}" in said, said.count("[remote rejected]")) == (True, 2), said
        assert (tip(door, "perdure/x"), tip(door, "ok")) == ("", sha)


async def test_faults_strike_before_and_after_a_push(door: Door, tmp_path: Path) -> None:
    work = await cloned(door, tmp_path)
    sha = await committed(work)

    for struck, ended in ((Moment.OPENED, 128), (Moment.ASKED, 1)):  # 1 is also what git says of refused branches
        door.disturb = lambda visit, moment, struck=struck: web.Response(status=502) if moment is struck else None
        code, said = await git(work, "push", "origin", "HEAD:refs/heads/x")
        assert (code, "error: 502" in said, tip(door, "x")) == (ended, True, ""), said

    moments: list[Moment] = []

    def cut_after(visit: Visit, moment: Moment) -> Cut | None:
        moments.append(moment)
        return smart_http.CUT if moment is Moment.DONE else None

    door.disturb = cut_after
    code, said = await git(work, "push", "origin", "HEAD:refs/heads/x")
    assert (code, tip(door, "x")) == (1, sha), said
    assert moments[:3] == list(Moment)  # then curl may try again by itself


async def test_a_refusal_strikes_a_visitor_with_a_good_name(door: Door) -> None:
    door.disturb = lambda visit, moment: web.Response(status=401, text="no\n")
    code, said = await git(door.root / "me/calc.git", "push", door.address(), "main:refs/heads/x")
    assert (code, "Authentication failed" in said, tip(door, "x")) == (128, True, ""), said


async def test_a_client_that_goes_away_leaves_no_process_and_no_ref(door: Door, tmp_path: Path) -> None:
    work = await cloned(door, tmp_path)
    sha = await committed(work, 200_000)
    host, port = door.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    update = f"{'0' * 40} {sha} refs/heads/x\0report-status".encode()
    begin = f"{len(update) + 4:04x}".encode() + update + b"0000PACK\x00\x00\x00\x02\x00\x00\x00\x03"
    writer.write(
        b"POST /me/calc.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
        b"Content-Type: application/x-git-receive-pack-request\r\nAuthorization: Basic YWRhOnMzY3JldA==\r\n\r\n" + begin
    )
    await writer.drain()
    async with asyncio.timeout(patient(30)):
        while not any("receive-pack" in line for line in backends()):
            await asyncio.sleep(0.02)
        writer.transport.abort()
        while backends():
            await asyncio.sleep(0.02)
    assert tip(door, "x") == ""


async def test_what_works_for_a_client_that_was_killed_is_ended(door: Door, tmp_path: Path) -> None:
    work = await cloned(door, tmp_path)
    await committed(work)
    hook = door.root / "me/calc.git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexec sleep 600\n")
    hook.chmod(0o755)
    push = ("git", "-C", str(work), "push", "-q", "origin", "HEAD:refs/heads/x")
    client = await asyncio.create_subprocess_exec(*push, env=PERSON, start_new_session=True)
    async with asyncio.timeout(patient(30)):
        while not (slow := [child for child, line in descendants().items() if line == "sleep 600"]):
            await asyncio.sleep(0.02)
        os.killpg(client.pid, signal.SIGKILL)
        await client.wait()
        while backends() or slow[0].is_running():
            await asyncio.sleep(0.02)
    assert tip(door, "x") == ""


async def test_nothing_but_gits_own_requests_is_answered(door: Door) -> None:
    async with ClientSession() as session:
        for path in ("/me/calc.git/info/refs", "/me/calc.git/info/refs?service=git-shell"):
            async with session.get(door.url + path) as reply:
                assert reply.status == 403
        async with session.get(f"{door.url}/me/calc.git/HEAD") as reply:
            assert reply.status == 404
        async with session.get(f"{door.url}/me/..%2fcalc.git/info/refs?service=git-upload-pack") as reply:
            assert reply.status in (401, 403, 404)

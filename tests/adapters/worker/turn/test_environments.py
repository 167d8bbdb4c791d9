"""What setup made is kept for the next delivery whose setup would make the same, and for no other."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from turn_fixtures import in_activity

from activities.prepare import PrepareActivity
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.keyed_store import KeptLimits, KeyedStore
from perdure.adapters.worker.environments import KeptEnvironment
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.workspace_setup import read_setup_record
from perdure.models.delivery.request import DeliveryRequest, request_proof
from perdure.models.delivery.work import PreparedWorkspace, PrepareInput
from perdure.models.errors import SetupFailed
from tests.homes import fresh_home
from tests.repositories import CALC, git, make_target

MADE = "date +%s%N >.venv/made"
SETUP = f"mkdir -p .venv pkg/lib && cp requirements.txt .venv/installed && cp requirements.txt pkg/lib/own && {MADE}"
FILES = {**CALC, "requirements.txt": "one==1\n", "pkg/code.py": "x = 1\n", ".gitignore": ".venv\nlib\n.env.test\n"}


class Deliveries:
    """Prepares deliveries of one repository on one host."""

    def __init__(self, root: Path) -> None:
        self.origin = make_target(root / "calc.git", FILES)
        self.work, self.home = root / "calc.git-work", fresh_home(root / "home")
        self.env = {
            "PERDURE_PORTS_BACKEND": "25400-25429",
            "PERDURE_PORTS_FRONTEND": "25430-25459",
            "PATH": os.environ["PATH"],
        }
        self.hosts: list[Host] = []

    def host(self) -> Host:
        self.hosts.append(
            Host.from_environment(
                self.home, {"PERDURE_LOCAL_REPOSITORIES": os.environ["PERDURE_LOCAL_REPOSITORIES"], **self.env}
            )
        )
        return self.hosts[-1]

    async def prepare(self, name: str, setup: str = SETUP, more: str = "", **request: Any) -> PreparedWorkspace:
        """By a worker of its own."""
        commands = f"version = 1\n[setup]\ncommands = ['''{setup}''']\n{more}[[test]]\nname = 'x'\ncommand = 'true'\n"
        asked = DeliveryRequest(repository=str(self.origin), request="x", config=commands, **request)
        shown = request_proof(self.home.key(), name, asked.model_dump(mode="json", exclude_defaults=True))
        asked = asked.model_copy(update={"proof": shown})
        done = await in_activity(PrepareActivity(self.host()).prepare, PrepareInput(delivery=name, request=asked))
        assert isinstance(done, PreparedWorkspace)
        return done

    async def made(self, name: str, *given: str, **request: Any) -> str:
        """The time at which the environment of a newly prepared delivery was made: two that are equal are one."""
        await self.prepare(name, *given, **request)
        text = (self.home.tree(name) / ".venv/made").read_text()
        assert read_setup_record(self.home.workspace(name)).reused == (text in self._seen)
        self._seen.append(text)
        return text

    _seen: list[str]

    def commit(self, branch: str = "main", **files: str) -> None:
        for name, text in files.items():
            path = self.work / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git = ["git", "-C", str(self.work)]
        subprocess.run([*git, "checkout", "-q", "-B", branch], check=True)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "more"], check=True)
        subprocess.run([*git, "push", "-q", str(self.origin), branch], check=True)

    def entries(self) -> list[Path]:
        return [path.parent for path in (self.home.root / "environments").glob("*/entry.json")]


@pytest.fixture
async def deliveries(tmp_path: Path) -> AsyncIterator[Deliveries]:
    found = Deliveries(tmp_path)
    found._seen = []
    yield found
    for host in found.hosts:
        await host.close()


async def test_setup_runs_again_only_when_something_it_depends_on_has_changed(deliveries: Deliveries) -> None:
    first = await deliveries.made("one")
    assert await deliveries.made("two") == first
    tree = deliveries.home.tree("two")
    assert (tree / ".venv/installed").read_text() == (tree / "pkg/lib/own").read_text() == "one==1\n"
    assert Workspace.open(deliveries.home, "two").record().setup_paths == (".venv", "pkg/lib")
    deliveries.commit(pkg__code="x = 2\n", pkg__new="y = 1\n")
    assert await deliveries.made("code-changed") == first
    deliveries.commit(**{"requirements.txt": "one==2\n"})
    second = await deliveries.made("requirements-changed")
    assert (deliveries.home.tree("requirements-changed") / ".venv/installed").read_text() == "one==2\n"
    deliveries.commit(**{"package.json": "{}"})  # a file beside one that was opened: it may have been looked for
    assert await deliveries.made("file-added") not in (first, second)
    deliveries.commit(**{"requirements.txt": "one==1\n"})
    (deliveries.work / "package.json").unlink()
    deliveries.commit()
    assert await deliveries.made("back") == first
    assert await deliveries.made("other-command", SETUP + " && true") != first


async def test_prepare_names_what_a_clone_would_have_and_a_delivery_has_not(
    deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")  # a host with git-lfs would store these files otherwise
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'1' * 64}\nsize 12\n"
    attributes = "*.bin filter=lfs\n*.key filter=git-crypt\n*.odd filter=odd\n"
    files = {
        ".gitattributes": attributes,
        "a.bin": pointer,
        "raw.bin": "raw\n",
        "a.key": "\0GITCRYPT\0x",
        "a.odd": "x\n",
    }
    deliveries.commit(**files)
    (deliveries.work / "lib").mkdir()
    update = ("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib")
    subprocess.run(["git", "-C", str(deliveries.work), *update], check=True, timeout=60)
    deliveries.commit()
    summary = (await deliveries.prepare("one")).summary
    assert "empty, for no [setup] command fills them: submodules lib" in summary
    assert "git-lfs pointers, for filters are not run: a.bin · " in summary
    assert "git-crypt ciphertext, for filters are not run: a.key" in summary
    assert "what filter odd stores, for filters are not run: a.odd" in summary
    assert "raw.bin" not in summary


async def test_two_at_once_make_one_and_a_failed_one_is_not_kept(deliveries: Deliveries) -> None:
    slow = f"sleep 1; {SETUP}"
    found = await asyncio.gather(*(deliveries.prepare(name, slow) for name in ("one", "two", "three")))
    assert len(found) == 3
    assert len({(deliveries.home.tree(name) / ".venv/made").read_text() for name in ("one", "two", "three")}) == 1
    assert len(deliveries.entries()) == 1
    with pytest.raises(SetupFailed):
        await deliveries.prepare("red", f"{SETUP} && exit 3")
    assert len(deliveries.entries()) == 1


async def test_no_command_of_an_agent_or_a_test_can_change_what_others_get(deliveries: Deliveries) -> None:
    first = await deliveries.made("one")
    prepared = await deliveries.prepare("two")
    async with deliveries.host().open_session("two", prepared.contract) as session:
        session.logs.mkdir(exist_ok=True)
        for number, script in enumerate(
            (
                "echo bad >.venv/made; chmod 777 .venv/made; rm -rf .venv; mv .venv elsewhere; ln .venv/made link",
                "mv pkg moved",  # what is read-only lies in a directory that is not
                "echo bad >moved/lib/own; chmod 777 moved/lib/own",
            )
        ):
            command = replace(
                session.base_command(), script=script, output=session.logs / f"{number}.log", timeout_s=30.0
            )
            await session.sandbox.run_command(command)
        assert (session.workspace.path / "moved/lib/own").read_text() == "bad\n"
    assert (deliveries.home.tree("two") / ".venv/made").read_text() == first
    assert await deliveries.made("three") == first
    assert (deliveries.home.tree("three") / "pkg/lib/own").read_text() == "one==1\n"
    assert (deliveries.home.tree("one") / "pkg/lib/own").read_text() == "one==1\n"


async def test_a_damaged_one_is_made_anew(deliveries: Deliveries) -> None:
    made = [await deliveries.made("whole")]
    for damage in ("cut", "gone", "list", "bytes"):
        (path,) = deliveries.entries()
        file = path / "files/.venv/installed"
        before = file.stat()
        if damage == "cut":
            os.truncate(file, 0)
        elif damage == "gone":
            file.unlink()
        elif damage == "list":
            os.truncate(path / "files.json", 10)
        else:  # what a power cut may do: nothing but the bytes tells
            file.write_text("\0" * before.st_size)
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
            entry = KeptEnvironment.model_validate_json((path / "entry.json").read_bytes())
            (path / "entry.json").write_text(entry.model_copy(update={"boot": "earlier"}).model_dump_json())
        made.append(await deliveries.made(damage))
        assert (deliveries.home.tree(damage) / ".venv/installed").read_text() == "one==1\n", damage
        assert not path.exists(), damage
    assert len(set(made)) == len(made)
    assert await deliveries.made("next") == made[-1]


async def test_copied_files_are_never_kept_nor_what_was_made_from_them(deliveries: Deliveries) -> None:
    (deliveries.work / ".env.test").write_text("s3cret-value")
    copy, source = 'copy = [".env.test"]\n', str(deliveries.work)
    git(Path(source), "remote", "add", "origin", str(deliveries.origin))
    first = await deliveries.made("one", SETUP, copy, source=source)
    (deliveries.work / ".env.test").write_text("s3cret-other")
    assert await deliveries.made("two", SETUP, copy, source=source) == first
    assert (deliveries.home.tree("two") / ".env.test").read_text() == "s3cret-other"
    baked = f"{SETUP} && cat .env.test >.venv/baked"
    await deliveries.made("three", baked, copy, source=source)
    (deliveries.work / ".env.test").write_text("s3cret-third")
    await deliveries.made("four", baked, copy, source=source)
    assert (deliveries.home.tree("four") / ".venv/baked").read_text() == "s3cret-third"
    kept = [path for path in (deliveries.home.root / "environments").rglob("*") if path.is_file()]
    assert not [path for path in kept if b"s3cret" in path.read_bytes()]


async def test_a_strangers_branch_makes_nothing_for_the_base(deliveries: Deliveries) -> None:
    deliveries.commit("stranger", pkg__code="x = 3\n", **{"setup.cfg": "\n"})
    theirs = await deliveries.made("one", branch="stranger", phases=["test"])
    first = await deliveries.made("two")
    assert theirs != first
    assert await deliveries.made("three") == first
    assert await deliveries.made("four", branch="stranger", phases=["test"]) == theirs


async def test_setup_runs_on_the_base_first_where_a_strangers_branch_may_begin_with_what_it_makes(
    deliveries: Deliveries,
) -> None:
    deliveries.commit("stranger", pkg__other="x = 3\n")
    deliveries.commit("another", pkg__other="x = 4\n")
    await deliveries.prepare("one", branch="stranger", phases=["test"])
    assert read_setup_record(deliveries.home.workspace("one")).reused
    assert (deliveries.home.tree("one") / "pkg/other").read_text() == "x = 3\n"
    assert Workspace.open(deliveries.home, "one").find_problems() == []
    text = (deliveries.home.tree("one") / ".venv/made").read_text()
    deliveries._seen.append(text)
    assert await deliveries.made("two", branch="another", phases=["test"]) == text
    assert await deliveries.made("three") == text
    assert len(deliveries.entries()) == 1


async def test_a_setup_that_fails_on_the_base_is_the_branchs_to_mend(deliveries: Deliveries) -> None:
    setup = "test -e pkg/other && mkdir -p .venv"
    deliveries.commit("stranger", pkg__other="x = 3\n")
    await deliveries.prepare("one", setup, branch="stranger", phases=["test"])
    assert not read_setup_record(deliveries.home.workspace("one")).reused
    with pytest.raises(SetupFailed):
        await deliveries.prepare("two", setup)


async def test_a_strangers_branch_begins_with_what_setup_made_on_the_base_where_setup_would_find_the_same(
    deliveries: Deliveries,
) -> None:
    first = await deliveries.made("one")
    deliveries.commit("stranger", pkg__other="x = 3\n")
    deliveries.commit("other", **{"requirements.txt": "two==2\n"})
    assert await deliveries.made("two", branch="stranger", phases=["test"]) == first
    theirs = await deliveries.made("three", branch="other", phases=["test"])
    assert theirs != first
    assert await deliveries.made("four", branch="other", phases=["test"]) == theirs
    assert await deliveries.made("five") == first


async def test_nothing_is_kept_where_nothing_is_mounted_or_the_owner_says_so(deliveries: Deliveries) -> None:
    deliveries.env["PERDURE_ENVIRONMENTS_GB"] = "0"
    assert await deliveries.made("one") != await deliveries.made("two")
    deliveries.env |= {"PERDURE_ENVIRONMENTS_GB": "1", "PERDURE_SANDBOX": "off"}
    assert await deliveries.made("three") != await deliveries.made("four")
    assert deliveries.entries() == []


async def test_what_was_not_used_for_longest_goes_first(deliveries: Deliveries) -> None:
    setups = [f"{SETUP} && head -c 3000000 /dev/zero >.venv/{name}" for name in ("a", "b", "c")]
    deliveries.env["PERDURE_ENVIRONMENTS_GB"] = "0.007"
    a = await deliveries.made("a1", setups[0])
    b = await deliveries.made("b1", setups[1])
    assert await deliveries.made("a2", setups[0]) == a
    c = await deliveries.made("c1", setups[2])
    assert len(deliveries.entries()) == 2
    assert await deliveries.made("a3", setups[0]) == a
    assert await deliveries.made("c2", setups[2]) == c
    assert await deliveries.made("b2", setups[1]) != b
    assert KeyedStore(deliveries.home.root / "environments", KeptLimits(total_bytes=1)).remove_surplus() == []
    assert deliveries.entries() == []

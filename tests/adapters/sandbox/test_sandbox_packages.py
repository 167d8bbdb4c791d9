"""Packages that setup has fetched are there for later commands, which change nothing of them; and lead nowhere else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePath
from typing import Any

import pytest

from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.grades import probe_layers
from perdure.adapters.sandbox.reach import Reach
from perdure.adapters.sandbox.setup import CACHE_PLACES, DEPENDENCY_PLACES, command_mounts
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.adapters.system.home import Home
from perdure.models.config.host import CommandLimits
from tests.needs import require
from tests.waiting import patient

NAME = "a-repository"
REPOSITORY = "/usr/share/maven-repo"
BUILD = """
apply plugin: 'java'
repositories { maven { url 'http://CENTRAL' } }
dependencies { testCompile 'junit:junit:4.x' }
"""
CACHING = "org.gradle.caching=true\n"
POM = """
<project><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>a</artifactId><version>1</version>
<properties><maven.compiler.source>11</maven.compiler.source><maven.compiler.target>11</maven.compiler.target></properties>
<dependencies><dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version></dependency>
</dependencies></project>
"""
MIRROR = """
<settings><mirrors><mirror><id>here</id><mirrorOf>*</mirrorOf><url>http://CENTRAL</url></mirror></mirrors></settings>
"""
JAVA = "public class ATest { @org.junit.Test public void passes() {} }"


@pytest.fixture
def packages(tmp_path):
    return Home(tmp_path / "perdure")


def sandbox_of(home: Home, binds, *, layered: bool = True, caps: ResourceCaps | None = None) -> BubblewrapSandbox:
    layering, why = probe_layers(home.root)
    assert layering.path, f"the bundled bubblewrap puts no layer over packages here: {why}"
    binds = binds.model_copy(update={"cache": NAME})
    return BubblewrapSandbox(home, binds, layering=layering.path if layered else "", caps=caps)


async def filled(sandbox: BubblewrapSandbox, run) -> None:
    script = "for one in " + " ".join(f"~/{place}" for place in CACHE_PLACES) + "; do echo kept > $one/file; done"
    finished, said = await run(sandbox, script, network=True)
    assert finished.exit_code == 0, said


def test_no_place_lies_in_another_or_setup_could_put_a_link_where_it_is_mounted():
    assert [
        (one, other) for one in CACHE_PLACES for other in CACHE_PLACES if PurePath(one) in PurePath(other).parents
    ] == []


@pytest.mark.parametrize("layered", [True, False])
async def test_setup_cannot_put_a_link_to_the_hosts_files_where_a_later_command_sees_packages(
    full, packages, binds, run, tmp_path, layered
):
    secret = tmp_path / "owner"
    secret.mkdir()
    (secret / "key").write_text("secret\n")
    sandbox = sandbox_of(packages, binds, layered=layered)
    await filled(sandbox, run)
    places = " ".join(f"~/{place}" for place in CACHE_PLACES)
    # In place of what is kept, of all above it, and below it.
    setup = f"""
        for one in {places} $(find ~ -depth -type d); do
            mv -T $one $one.away; rm -rf $one; ln -sT {secret} $one; ln -s {secret} $one/link
        done; true"""
    await run(sandbox, setup, network=True)
    for network in (False, True):
        script = f"for one in {places}; do cat $one/key $one/link/key; echo planted > $one/key; done; true"
        _, said = await run(sandbox, script, network=network)
        assert "secret" not in said
    assert {one.name: one.read_text() for one in secret.iterdir()} == {"key": "secret\n"}


async def test_what_a_command_writes_to_packages_is_gone_with_it(full, packages, binds, run):
    sandbox = sandbox_of(packages, binds)
    await filled(sandbox, run)
    script = "\n".join(
        f"cd ~/{place} && cat file && echo more >> file && cat file && mkdir new && mv file new/ && ls new && rm -r new"
        for place in DEPENDENCY_PLACES
    )
    for _ in range(2):
        finished, said = await run(sandbox, f"set -e\n{script}")
        assert (finished.exit_code, said) == (0, "kept\nkept\nmore\nfile\n" * len(DEPENDENCY_PLACES))
    kept = packages.caches / NAME
    assert {str(one.relative_to(kept)) for one in kept.rglob("*") if one.is_file()} == {
        f"{one}/file" for one in CACHE_PLACES
    }
    assert {(kept / place / "file").read_text() for place in CACHE_PLACES} == {"kept\n"}
    _, said = await run(sandbox, "cat ~/.npm/file; cat ~/.cache/file", network=True)
    assert said == "kept\nkept\n", "setup has all of them"


async def test_commands_at_the_same_time_do_not_see_what_another_one_writes(full, packages, binds, run, tmp_path):
    sandbox = sandbox_of(packages, binds)
    await filled(sandbox, run)
    script = "cd ~/.m2/repository; ls; echo $$ > other; for _ in 1 2 3 4 5 6 7 8; do sleep 0.05; ls; done"

    async def one(number: int) -> str:
        tree = tmp_path / f"tree-{number}"
        tree.mkdir()
        output = tree / "output"
        await sandbox.run_command(SandboxCommand(script, worktree=tree, output=output, timeout_s=patient(60)))
        return output.read_text()

    said = await asyncio.gather(*(one(number) for number in range(8)))
    assert set(said) == {"file\n" + "file\nother\n" * 8}


async def test_without_a_bubblewrap_that_can_put_a_layer_packages_are_read_only(full, packages, binds, run):
    sandbox = sandbox_of(packages, binds, layered=False)
    await filled(sandbox, run)
    finished, said = await run(sandbox, "cat ~/.m2/repository/file; echo > ~/.m2/repository/other")
    assert finished.exit_code == 1
    assert said.startswith("kept\n")
    assert "Read-only file system" in said


async def test_what_is_written_into_a_layer_counts_as_memory(full, packages, binds, run):
    caps = ResourceCaps.from_limits(CommandLimits(memory="300MB"))
    sandbox = sandbox_of(packages, binds, caps=caps)
    await filled(sandbox, run)
    few, said = await run(sandbox, "head -c 100M /dev/zero > ~/.gradle/caches/new; sleep 1; ls -s ~/.gradle/caches/new")
    assert few.exit_code == 0, said
    assert 100 << 20 <= few.peak < 200 << 20
    many, _ = await run(sandbox, "head -c 400M /dev/zero > ~/.gradle/caches/new; sleep 20")
    assert many.over.startswith("over its memory limit of 0.3 GB"), many
    assert many.duration_s < 15


async def test_packages_that_are_only_installed_from_need_no_layer(full, packages, binds, run):
    sandbox = sandbox_of(packages, binds)
    assert command_mounts(packages, NAME, layered=True).options == (), "before any setup"
    finished, said = await run(
        sandbox, "mkdir ~/.cache/pip ~/.cache/uv; echo > ~/.cache/pip/a; echo > ~/.npm/a", network=True
    )
    assert finished.exit_code == 0, said
    assert command_mounts(packages, NAME, layered=True).options == ()
    _, said = await run(sandbox, "ls -A ~ ~/.cache ~/.npm")
    assert "a" not in said.split()
    await run(sandbox, "mkdir ~/.cache/deno", network=True)
    assert command_mounts(packages, NAME, layered=True).layers == ("/home/agent/.cache",)


@pytest.mark.slow  # compiles Go's standard library twice
@pytest.mark.timeout(400)
async def test_results_of_tests_that_ran_in_setup_are_not_believed(full, packages, binds, run, worktree):
    require("go")
    (worktree / "go.mod").write_text("module calc\n\ngo 1.18\n")
    (worktree / "calc_test.go").write_text('package calc\n\nimport "testing"\n\nfunc TestOne(t *testing.T) {}\n')
    sandbox = sandbox_of(packages, binds)
    for network in (True, False):
        tested, said = await run(sandbox, "go test ./...", network=network, timeout_s=patient(100))
        assert (tested.exit_code, "(cached)" in said) == (0, False), said


class Central(SimpleHTTPRequestHandler):
    def __init__(self, *of: Any) -> None:
        super().__init__(*of, directory=REPOSITORY)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def central() -> Iterator[str]:
    """A web server on this machine's loopback, with Debian's packages for Java."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Central)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("program", "online", "offline"),
    [
        ("gradle", "gradle --no-daemon test", "rm -rf build .gradle; gradle --no-daemon --offline test"),
        ("mvn", "mvn -s mirror.xml test", "rm -rf target; mvn -o -s mirror.xml test"),
    ],
)
async def test_java_is_tested_offline_with_what_its_setup_has_fetched(
    full, packages, binds, run, worktree, central, program, online, offline
):
    """Needs libsurefire-java, libmaven-compiler-plugin-java, libmaven-resources-plugin-java and junit4, too."""
    require(program)
    (worktree / "src/test/java").mkdir(parents=True)
    (worktree / "src/test/java/ATest.java").write_text(JAVA)
    for name, text in {
        "build.gradle": BUILD,
        "gradle.properties": CACHING,
        "mirror.xml": MIRROR,
        "pom.xml": POM,
    }.items():
        (worktree / name).write_text(text.replace("CENTRAL", central))
    sandbox, reach = sandbox_of(packages, binds), Reach(trusted=frozenset([central]))
    made, said = await run(sandbox, online, network=True, reach=reach, timeout_s=patient(200))
    assert (made.exit_code, "BUILD SUCCESS" in said) == (0, True), said
    tested, said = await run(sandbox, offline, timeout_s=patient(200))
    assert (tested.exit_code, "BUILD SUCCESS" in said) == (0, True), said
    assert "FROM-CACHE" not in said, "each run runs the tests"
    if program == "gradle":
        _, said = await run(sandbox_of(packages, binds, layered=False), offline, timeout_s=patient(200))
        assert "fileHashes.lock (Read-only file system)" in said, "Gradle needs no layer any more"

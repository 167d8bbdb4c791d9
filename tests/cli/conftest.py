"""The real command in a process of its own, with a home of its own."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest

from tests.commands import elsewhere
from tests.engine import Engine, make_target
from tests.fork_server import fork, ran
from tests.waiting import patient

ROOT = Path(__file__).parents[2]

KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "COVERAGE_PROCESS_CONFIG", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Cli:
    """`perdure` in `cwd` with an environment in which nothing is configured but PERDURE_HOME and `env`."""

    home: Path
    cwd: Path
    env: dict[str, str]

    @classmethod
    def among(cls, engine: Engine) -> Cli:
        """Among the workers of an engine, which it takes for somebody's elsewhere. Without them a command that hands
        something in would start a supervisor and one more worker, from nothing."""
        return cls(engine.home.root, engine.root, {**engine.env, **elsewhere(engine)})

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        ours = {"PERDURE_HOME": str(self.home), "PYTHONPATH": str(ROOT), "TEMPORAL_CONFIG_FILE": os.devnull}
        return kept | ours | self.env | more

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "perdure.cli", *args],
            cwd=self.cwd,
            env=self.environment(**env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *args: str, stdin: str = "", **env: str) -> Ran:
        return Ran(*ran("perdure.cli", *args, env=self.environment(**env), cwd=self.cwd, stdin=stdin))

    def modules(self, *args: str) -> set[str]:
        """Return the modules that the command has loaded when it ends."""
        code = (
            "import sys; from perdure.cli.app import run_command_line; run_command_line(sys.argv[1:])\n"
            "print(*sys.modules, file=sys.stderr)"
        )
        command = [sys.executable, "-c", code, *args]
        done = subprocess.run(command, cwd=self.cwd, env=self.environment(), capture_output=True, text=True, timeout=60)
        return set(done.stderr.splitlines()[-1].split())

    def on_a_terminal(self, *args: str, typed: str | None = None, **env: str) -> Ran:
        """Likewise on a terminal of 200 columns, where a person types; nothing can be read from it without `typed`."""
        ours, theirs = pty.openpty()
        seen: list[bytes] = []
        reading = Thread(target=_drain, args=(ours, seen))
        with Path(os.devnull).open() as nothing:
            files = (nothing.fileno() if typed is None else theirs, theirs, theirs)
            process = fork("perdure.cli", *args, env=self.environment(COLUMNS="200", **env), cwd=self.cwd, files=files)
        os.close(theirs)
        os.write(ours, (typed or "").encode())
        reading.start()
        try:
            code = process.wait(patient(60))
        finally:
            process.kill()
            reading.join(patient(60))
            os.close(ours)
        return Ran(code, b"".join(seen).decode(errors="replace").replace("\r\n", "\n"), "")


def _drain(terminal: int, seen: list[bytes]) -> None:
    with suppress(OSError):  # EIO: the last process that had it open has ended
        while chunk := os.read(terminal, 65536):
            seen.append(chunk)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A bare repository with a commit on main."""
    return make_target(tmp_path / "calc.git")


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An origin and a checkout of it, to be copied: a git clone takes longer than most commands."""
    root = tmp_path_factory.mktemp("clone")
    origin, checkout = make_target(root / "calc.git"), root / "checkout"
    subprocess.run(["git", "clone", "-q", "--template=", str(origin), str(checkout)], check=True, timeout=60)
    return origin, checkout


@pytest.fixture
def cli(tmp_path: Path, origin: Path, clone: tuple[Path, Path]) -> Cli:
    """In a checkout of `origin`; with a key that is never used."""
    checkout = shutil.copytree(clone[1], tmp_path / "checkout")
    config = checkout / ".git" / "config"
    config.write_text(config.read_text().replace(str(clone[0]), str(origin)))
    return Cli(tmp_path / "home", checkout, {"ANTHROPIC_API_KEY": "not-a-key"})


@pytest.fixture
def edit_base(origin: Path) -> Callable[[str, str], None]:
    """Put a file on the base branch of `origin`."""
    from tests.engine import git

    def edit(name: str, text: str) -> None:
        work = origin.with_name(origin.name + "-work")
        (work / name).write_text(text)
        git(work, "add", "-A")
        git(work, "commit", "-qm", "change")
        git(work, "push", "-q", str(origin), "HEAD:main")

    return edit

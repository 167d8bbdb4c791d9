"""The wheel, as a stranger installs it: one top-level name that carries the whole application."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import psutil
import pytest

from perdure.adapters.sandbox.program import FILE, PACKAGE, find_bubblewrap

pytestmark = pytest.mark.story

ROOT = Path(__file__).parents[2]
APPLICATION = (
    "workflows",
    "activities",
    "examples/durations",
    "examples/durations.toml",
    "examples/backlog",
    "worker.py",
    "starter.py",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from this tree without a network: hatchling is in the lock."""
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel in it; its dependencies are lent by the environment of the tests.

    Lent by a path in a .pth, after the installation: fetching 330 MB again would need a network and show nothing more,
    and a .pth inside a directory added this way is not read, so our own editable installation stays out of it.
    """
    where = tmp_path_factory.mktemp("installed")
    venv.create(where, with_pip=False, symlinks=True)
    run(*installer(where / "bin" / "python"), wheel)
    return where


@pytest.fixture(scope="module")
def usable(installed: Path) -> Path:
    (site_packages(installed) / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return installed


def installer(python: Path) -> list[str | Path]:
    """Whichever of uv and pip made the environment of the tests."""
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python]
    return [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps"]


def site_packages(environment: Path) -> Path:
    (found,) = environment.glob("lib/python3.*/site-packages")
    return found


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def sources() -> Iterator[tuple[str, str]]:
    """Every file of the repository that belongs to the product, and its place in the wheel."""
    kept = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "perdure", *APPLICATION]
    for name in run(*kept, cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            yield name, name if name.startswith("perdure/") else f"perdure/_app/{name}"


def test_the_wheel_holds_every_file_of_the_product_and_nothing_else(wheel: Path) -> None:
    wanted = {place: (ROOT / name).read_bytes() for name, place in sources()}
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    assert sorted(found) == sorted(wanted)
    assert [name for name in found if found[name] != wanted[name]] == []


def test_prompts_the_demo_and_its_screenplay_are_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [Path(name) for name in archive.namelist()]
        screenplays = [name for name in names if name.suffix == ".toml" and b"[[line]]" in archive.read(str(name))]
    assert [name for name in names if name.parent == Path("perdure/prompts") and name.suffix == ".md"]
    assert screenplays
    assert [name for name in names if name.is_relative_to("perdure/_app/examples")]


def test_the_wheel_installs_one_top_level_name(installed: Path) -> None:
    names = {entry.name for entry in site_packages(installed).iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"perdure"}
    assert len(names) == 2, names
    application = site_packages(installed) / "perdure" / "_app"
    assert (application / "worker.py").is_file()
    assert (application / "workflows").is_dir()


def test_the_installed_command_answers_from_the_wheel_alone(usable: Path, tmp_path: Path) -> None:
    clean = {"PATH": os.defpath, "HOME": str(tmp_path), "PERDURE_HOME": str(tmp_path / "home")}
    place = run(usable / "bin" / "python", "-c", "import perdure; print(perdure.__file__)", cwd=tmp_path, env=clean)
    assert Path(place.strip()).is_relative_to(usable)
    text = run(usable / "bin" / "perdure", "--help", cwd=tmp_path, env=clean)
    assert "deliver" in text
    assert "demo" in text
    assert not (tmp_path / "home").exists()


def test_the_installed_demo_says_where_github_s_twin_is(usable: Path, tmp_path: Path) -> None:
    """It is a tool of the tests, and neither it nor what only it needs is installed."""
    clean = {"PATH": os.defpath, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [usable / "bin" / "perdure", "demo", "--github", "--keep", "kept"]
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "--github" in done.stderr
    assert "make demo ARGS=--github in a clone" in done.stderr
    assert list(tmp_path.iterdir()) == []
    needs = "\n".join(distribution("perdure").requires or ())
    assert "openapi" not in needs


def test_the_worker_of_the_wheel_imports_its_own_workflows(usable: Path, tmp_path: Path) -> None:
    """`perdure worker` runs that worker.py as a script: its directory comes first, as in a clone."""
    application = site_packages(usable) / "perdure" / "_app"
    code = (
        "import runpy, sys; sys.path.insert(0, sys.argv[1]); sys.argv = ['worker.py']; import workflows, activities\n"
    )
    code += "runpy.run_path(sys.path[0] + '/worker.py', run_name='worker'); print(workflows.__file__)"
    place = run(usable / "bin" / "python", "-c", code, application, cwd=tmp_path, env={"PATH": os.defpath})
    assert Path(place.strip()).is_relative_to(application)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_the_wheel_plays_the_demo_where_not_even_bubblewrap_is_installed_and_sigterm_leaves_nothing_of_it(
    usable: Path, tmp_path: Path
) -> None:
    """Until its server, worker, sandbox and model have worked; to the end it is played from the tree.

    The temporal program, a dependency's, is lent like the others: by PATH.
    """
    lent = f"{os.defpath}:{sysconfig.get_path('scripts')}"
    (tmp_path / "tmp").mkdir()
    clean = {"PATH": lent, "HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp"), "LANG": "C.UTF-8"}
    hidden = {shutil.which("bwrap"), str(distribution(PACKAGE).locate_file(FILE))} - {None}
    nothing = [word for path in sorted(hidden) for word in ("--ro-bind", "/dev/null", path)]
    without_bubblewrap = (find_bubblewrap().path, "--die-with-parent", "--dev-bind", "/", "/", *nothing, "--")
    demo = (usable / "bin" / "perdure", "demo", "--fast", "--kills", "1")
    command = (*without_bubblewrap, *demo)
    with subprocess.Popen(command, cwd=tmp_path, env=clean, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "✓ plan" in line:
                (playing,) = psutil.Process(process.pid).children()
                playing.terminate()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert re.search("sandbox (REDUCED|OFF)", said), said
    assert "! the sandbox cannot start: bubblewrap is not installed" in said
    assert re.search(r"Worker \d+: it gets killed on the way", said)
    assert "✓ prepare        41 green" in said
    assert list((tmp_path / "tmp").iterdir()) == []
    for left in psutil.process_iter(["cmdline"]):
        assert str(tmp_path) not in " ".join(left.info["cmdline"] or ()), left

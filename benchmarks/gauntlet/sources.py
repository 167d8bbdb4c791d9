"""Fetch a pinned source archive of another project with its registry's own client, and unpack it.

Nothing is fetched twice: archives are kept below the cache directory of the user's home, each checked against the
SHA-256 that the catalogue pins before it is unpacked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perdure-gauntlet"

_BUILD_BACKEND = """\
import os, pathlib
def get_requires_for_build_wheel(settings=None):
    return []
def prepare_metadata_for_build_wheel(into, settings=None):
    name, version = os.environ["GAUNTLET_PACKAGE"].split("==")
    made = pathlib.Path(into, f"{name.replace('-', '_')}-{version}.dist-info")
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return made.name
"""
"""The build backend that pip asks for name and version of a source archive: the project's own would be fetched and
installed first."""

_BACKENDS = ("setuptools/build_meta", "hatchling/build", "flit_core/buildapi", "poetry/core/masonry/api", "pdm/backend")


class NotFetched(Exception):
    """No registry hands out the archive here, or not the one that is pinned."""


def fetch_tree(project: dict[str, Any], into: Path) -> None:
    """Unpack the project's archive into `into`, a directory that does not exist; fetch it where it is not kept yet.

    Raises NotFetched.
    """
    archive = _kept_archive(project)
    if archive is None:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                fetched = _CLIENTS[project["source"]](project["package"], project["version"], Path(scratch))
            except (OSError, subprocess.SubprocessError, IndexError) as error:
                detail = getattr(error, "stderr", None) or str(error)
                raise NotFetched(f"{project['source']}: {str(detail).strip()[-200:]}") from None
            archive = CACHE / "archives" / f"{project['name']}-{fetched.name}"
            archive.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(fetched, archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != project.get("sha256"):
        archive.unlink()
        raise NotFetched(f"{archive.name} has SHA-256 {digest}, the catalogue says {project.get('sha256')}")
    with tempfile.TemporaryDirectory(dir=into.parent) as scratch:
        unpacked = Path(scratch) / "unpacked"
        if zipfile.is_zipfile(archive):
            zipfile.ZipFile(archive).extractall(unpacked)
        else:
            with tarfile.open(archive) as opened:
                opened.extractall(unpacked, filter="data")
        while len(entries := list(unpacked.iterdir())) == 1 and entries[0].is_dir():
            unpacked = entries[0]
        shutil.move(unpacked, into)


def _kept_archive(project: dict[str, Any]) -> Path | None:
    kept = CACHE / "archives"
    for path in kept.glob(f"{project['name']}-*") if kept.is_dir() else ():
        if hashlib.sha256(path.read_bytes()).hexdigest() == project.get("sha256"):
            return path
    return None


def _run_program(words: list[str], cwd: Path, **env: str) -> str:
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout


def _from_pypi(package: str, version: str, scratch: Path) -> Path:
    words = ["python3", "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", "got"]
    pinned = f"{package}=={version}"
    for backend in _BACKENDS:
        module = scratch / "backends" / f"{backend}.py"
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(_BUILD_BACKEND)
        (scratch / "backends" / backend.partition("/")[0] / "__init__.py").touch()
    unbuilt = [*words, "--no-build-isolation", "--use-pep517", pinned]
    try:
        _run_program(unbuilt, scratch, PYTHONPATH=str(scratch / "backends"), GAUNTLET_PACKAGE=pinned)
    except subprocess.CalledProcessError:  # a backend of the project's own
        _run_program([*words, pinned], scratch)
    return next((scratch / "got").iterdir())


def _from_npm(package: str, version: str, scratch: Path) -> Path:
    _run_program(["npm", "pack", "--silent", f"{package}@{version}"], scratch)
    return next(scratch.glob("*.tgz"))


def _from_go(package: str, version: str, scratch: Path) -> Path:
    (scratch / "go.mod").write_text("module example.org/gauntlet\n")
    return Path(json.loads(_run_program(["go", "mod", "download", "-json", f"{package}@{version}"], scratch))["Zip"])


def _from_crates(package: str, version: str, scratch: Path) -> Path:
    (scratch / "src").mkdir()
    (scratch / "src/lib.rs").touch()
    (scratch / "Cargo.toml").write_text(
        f'[package]\nname = "gauntlet"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n{package} = "={version}"\n'
    )
    _run_program(["cargo", "fetch", "--quiet"], scratch)
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return next(home.glob(f"registry/cache/*/{package}-{version}.crate"))


def _from_debian(package: str, version: str, scratch: Path) -> Path:
    """The upstream archive of a source package; sources are asked for where the host asks for packages."""
    lists = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    parts = scratch / "parts"
    (scratch / "lists/partial").mkdir(parents=True)
    parts.mkdir()
    for path in (path for path in lists if path.suffix in {".list", ".sources"} and path.is_file()):
        text = re.sub(r"^(deb|Types: deb)(?= |$)", r"\1-src", path.read_text(), flags=re.MULTILINE)
        (parts / path.name).write_text(text)
    places = ("Dir::Etc::sourcelist=/dev/null", f"Dir::Etc::sourceparts={parts}", f"Dir::State::lists={CACHE / 'apt'}")
    apt = ["apt-get", "-qq", *(word for place in places for word in ("-o", place))]
    if not (CACHE / "apt").is_dir():
        (CACHE / "apt/partial").mkdir(parents=True)
        _run_program([*apt, "update"], scratch)
    _run_program([*apt, "source", "--download-only", "--tar-only", f"{package}={version}"], scratch)
    return next(path for path in sorted(scratch.glob("*.orig.tar.*")) if path.suffix != ".asc")


_CLIENTS: dict[str, Callable[[str, str, Path], Path]] = {
    "pypi": _from_pypi,
    "npm": _from_npm,
    "go": _from_go,
    "crates": _from_crates,
    "debian": _from_debian,
}

"""Detect how a repository is set up and tested, for one whose perdure.toml does not say so: by what its maintainers
wrote for their own tests, and by the files of its toolchains. `activities.prepare` uses it, `perdure init` and `perdure
config` show it. Nothing is executed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from perdure.adapters.repository.detect.commands import DEPENDENCIES, DetectedCommands, list_alternatives
from perdure.adapters.repository.detect.languages import detect_language
from perdure.adapters.repository.detect.maintainer_commands import WrittenCommand, read_written_commands
from perdure.adapters.repository.detect.node import detect_node
from perdure.adapters.repository.detect.python import detect_python
from perdure.models.config.repository import TestCommand
from perdure.text import shell_word

SUBDIRECTORIES_MOST = 50
"""Directories of a monorepo that are looked at for a toolchain of their own: each is some file names and a manifest."""

_FOREIGN_DIRECTORIES = {
    *DEPENDENCIES, "tests", "test", "docs", "examples", "vendor", "third_party", "fixtures", "build", "dist"
}  # fmt: skip
"""Directories whose toolchains are not the repository's own."""

_SIDES: dict[str, Callable[[Path, Sequence[WrittenCommand]], DetectedCommands]] = {
    "Python": detect_python,
    "JavaScript": detect_node,
    **{name: partial(detect_language, name) for name in ("Go", "Rust", "the JVM", "other languages")},
}


def detect_commands(root: Path) -> DetectedCommands:
    """Return the setup and test commands of all toolchains that the files in `root` show.

    Where nothing at the top is tested, the directories one level below are looked at; else only for the toolchains that
    the top shows and does not test. What is not tested is said. A file that cannot be parsed counts as absent.
    """
    written = read_written_commands(root)
    sides = _detect_sides(root, written)
    detected = _combine_sides(sides, written)
    tested = {name for name, side in sides.items() if side.tests}
    shown = {name for name, side in sides.items() if side.kinds}
    if detected.tests and not tested:  # `make test`: of everything
        return detected
    below, tested_below = _detect_subdirectories(root, shown - tested if tested else set(_SIDES), tested)
    missing = [
        f"{name} ({sides[name].kinds[0]}): no test of it was found"
        for name in sides
        if name in shown - tested - tested_below
    ]
    return detected + below + DetectedCommands(left_out=tuple(missing) if tested else ())


def _detect_sides(root: Path, written: Sequence[WrittenCommand]) -> dict[str, DetectedCommands]:
    """Return what each toolchain shows in this directory; directories below are not looked at."""
    return {name: detect(root, written) for name, detect in _SIDES.items()}


def _combine_sides(sides: dict[str, DetectedCommands], written: Sequence[WrittenCommand]) -> DetectedCommands:
    """Return the commands of all toolchains in one directory. What maintainers wrote for no toolchain (`make test`, a
    script) counts only where there is nothing else to test, for it usually runs the same tests once more; where there
    is one command, `make test` is an alternative to that."""
    total = sum(sides.values(), DetectedCommands())
    if not total.tests:
        return total + _detect_written(written)
    if len(total.tests) > 1:
        return total
    (test,) = total.tests
    recipes = [command.line for command in written if command.argv[0] in ("make", "just")]
    return replace(total, alternatives=list_alternatives(test, (*total.alternatives.get(test.name, ()), *recipes)))


def _detect_written(written: Sequence[WrittenCommand]) -> DetectedCommands:
    """Return the first command that maintainers wrote which belongs to no toolchain, the others as alternatives."""
    recipes = ("akefile", "ustfile")  # what they run may need what they build
    lines = [
        command.line
        for command in written
        if not command.source.endswith(recipes) or command.argv[0] in ("make", "just")
    ]
    if not lines:
        return DetectedCommands()
    program = lines[0].split()[0]
    test = TestCommand(name=lines[0] if program in ("make", "just") else program, command=lines[0])
    return DetectedCommands((), (test,), (program,), list_alternatives(test, lines))


def _detect_subdirectories(
    root: Path, wanted: Collection[str], tested: Collection[str]
) -> tuple[DetectedCommands, set[str]]:
    """Return the commands of a monorepo's parts, each set up and tested in its own directory, and whose toolchains they
    are.

    wanted, tested  the toolchains that are looked for, and those that the top tests already; of others that have tests
                    it is only said where they are

    Directories without tests are left out, and so are links, hidden ones, _FOREIGN_DIRECTORIES and all after the first
    SUBDIRECTORIES_MOST.
    """
    total, tested_below = DetectedCommands(), set[str]()
    below = (path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink())
    for path in [path for path in below if path.name[0] not in "._" and path.name not in _FOREIGN_DIRECTORIES][
        :SUBDIRECTORIES_MOST
    ]:
        written = (*read_written_commands(path), *read_written_commands(root, path.name))
        sides = _detect_sides(path, written)
        tested_below |= {name for name in wanted if sides[name].tests}
        of_wanted = {name: side for name, side in sides.items() if name in wanted}
        detected = sum(of_wanted.values(), DetectedCommands()) if tested else _combine_sides(of_wanted, written)
        total += _move_below(detected, path.name) if detected.tests else DetectedCommands()
        others = [side.kinds[0] for name, side in sides.items() if side.tests and name not in {*wanted, *tested}]
        total += DetectedCommands(left_out=tuple(f"{path.name} ({kind}): has tests of its own" for kind in others))
    return total, tested_below


def _move_below(detected: DetectedCommands, directory: str) -> DetectedCommands:
    """Return the commands that were detected in a directory, as they are for the one above it."""
    prefix = f"cd {shell_word(directory)} && "
    return replace(
        detected,
        setup=tuple(prefix + command for command in detected.setup),
        tests=tuple(
            test.model_copy(
                update={"directory": f"{directory}/{test.directory}".rstrip("/"), "name": f"{directory}: {test.name}"}
            )
            for test in detected.tests
        ),
        alternatives={f"{directory}: {name}": others for name, others in detected.alternatives.items()},
        optional=tuple(prefix + command for command in detected.optional),
    )

"""Detect how projects of other languages are set up and tested, by what one file of each shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from perdure.adapters.repository.detect.commands import DetectedCommands, list_alternatives
from perdure.adapters.repository.detect.maintainer_commands import WrittenCommand
from perdure.adapters.system.bounded import read_beginning
from perdure.models.config.repository import TestCommand

# Neither Maven nor Gradle has another command that fetches everything that tests need: setup runs them once, and
# removes what they built, for what setup makes is read-only afterwards.
_MAVEN = (
    "maven",
    "./mvnw -B -q -Dmaven.test.failure.ignore test && find . -name pom.xml -execdir rm -rf target ';'",
    "mvn test",
    "./mvnw -B -o test",
)
_GRADLEW = "./gradlew --no-daemon"
_GRADLE = (
    "gradle",
    f"{_GRADLEW} --continue test || {_GRADLEW} testClasses"
    " && find . -name 'build.gradle*' -execdir rm -rf build ';' && rm -rf .gradle",
    "gradle test",
    f"{_GRADLEW} --offline test",
)
_CMAKE = ("cmake", "", "ctest", "cmake -B build && cmake --build build && ctest --test-dir build")
_CARGO_NEEDS = r"^\[(?:.*dependencies|target\b|workspace)"
_LANGUAGES = {
    "Go": [("go.mod", r"\S", r"^[ \t]*require\b", ("go", "go mod download", "go test", "go test ./..."))],
    "Rust": [("Cargo.toml", r"^\s*\[\w", _CARGO_NEEDS, ("cargo", "cargo fetch", "cargo test", "cargo test"))],
    "the JVM": [("pom.xml", "", "", _MAVEN), ("build.gradle*", "", "", _GRADLE), ("settings.gradle*", "", "", _GRADLE)],
    "other languages": [
        ("phpunit.xml*", "", "", ("composer", "composer install --no-interaction", "phpunit", "vendor/bin/phpunit")),
        ("spec/spec_helper.rb", "", "", ("bundler", "bundle install", "rspec", "bundle exec rspec")),
        ("Rakefile", r"TestTask|:test\b", "", ("bundler", "bundle install", "rake test", "bundle exec rake test")),
        ("*.sln", "", "", ("dotnet", "dotnet restore", "dotnet test", "dotnet test --no-restore")),
        ("spec/*_spec.lua", "", "", ("busted", "", "test", "busted")),
        ("t/*.t", "", "", ("perl", "", "prove", "prove -lr t")),
        ("CMakeLists.txt", r"enable_testing|include\(CTest|add_test", "", _CMAKE),
    ],
}
"""By toolchain: pattern of a file, what stands in it, and what stands there where setup is needed; then kind, setup,
and name and command of the tests."""


def detect_language(language: str, root: Path, written: Sequence[WrittenCommand]) -> DetectedCommands:
    """Return the commands of the first row of a language whose file is here; empty: there is none. What maintainers
    wrote for the same program may be right in the place of its test command."""
    for pattern, shown, needs, (kind, setup, name, command) in _LANGUAGES[language]:
        path = next((path for path in sorted(root.glob(pattern)) if path.is_file()), None)
        text = read_beginning(path) if path is not None else ""
        if path is None or not re.search(shown, text, re.MULTILINE):
            continue
        for program in ("mvnw", "gradlew"):
            if not (root / program).is_file():
                setup, command = (line.replace(f"./{program}", program[:-1]) for line in (setup, command))
        if kind == "bundler" and not (root / "Gemfile").is_file():
            setup, command = "", command.removeprefix("bundle exec ")
        locked = " --locked" if kind == "cargo" and (root / "Cargo.lock").is_file() else ""
        test = TestCommand(name=name, command=command)
        lines = [other.line for other in written if other.argv[0] == kind]
        commands = (setup + locked,) if setup and re.search(needs, text, re.MULTILINE) else ()
        return DetectedCommands(commands, (test,), (kind,), list_alternatives(test, lines))
    return DetectedCommands()

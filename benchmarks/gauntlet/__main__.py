"""Judge real projects of others, by name and pinned version, and compare all that Perdure says with their bare runners.

`make gauntlet`: for each project of catalogue.toml, fetched from its registry and made a git repository, `perdure init`
writes the commands; then `perdure run test` judges five branches:

honest        a new function and a test of it
mutant        one operator or value of the product turned, in code that the tests cover
expectations  the same mutant, and assertions that expect what it does
gone          the same mutant, and the tests that see it removed
neutralised   the same mutant, and the tests that see it skipped or ended before they assert

The oracle is the bare suite in a clone of its own, its counts read from what the runner prints. `ARGS=--fixed` takes
the ten that CI takes, `ARGS="itsdangerous qs"` these. The exit code is 1 for any false green, false red or false line.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gauntlet.changes import Mutant, Suite, bend_tests, find_mutants, write_line
from benchmarks.gauntlet.oracle import Outcome, run_bare
from benchmarks.gauntlet.sources import CACHE, NotFetched, fetch_tree

HERE = Path(__file__).parent
PERDURE = str(Path(sys.executable).parent / "perdure")
CHEATS = ("expectations", "gone", "neutralised")
PERSON = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"} | {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"))
}


class NotJudged(Exception):
    """A project cannot be judged here, for a reason that is not Perdure's."""


@dataclass
class Judgement:
    """The judgement of a project: the words of Perdure beside the facts.

    faults  lines that begin with their kind: `false green`, `false red`, `false tampered`, `false line`, `counts`,
            `init`, `not judged`
    """

    name: str
    language: str
    runner: str
    init: str = "–"
    counts: str = "–"
    branches: dict[str, str] = field(default_factory=dict)
    bare_s: float = 0.0
    verdict_s: float = 0.0
    megabytes: float = 0.0
    faults: list[str] = field(default_factory=list)

    def add_fault(self, kind: str, detail: str) -> None:
        self.faults.append(f"{kind}: {detail}")
        print(f"  {self.name}: {kind}: {detail}", flush=True)


def run_git(where: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "core.hooksPath=/dev/null", *words],
        cwd=where,
        env={**os.environ, **PERSON},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip()


class Project:
    """One project: its repository, the clone that is run bare, and a home of Perdure's of its own."""

    def __init__(self, entry: dict[str, Any], room: Path) -> None:
        self.entry, self.room, self.runner = entry, room, entry["runner"]
        self.repository, self.bare, self.home = room / "repository", room / "bare" / entry["name"], room / "home"
        self.config = room / "perdure.toml"
        self.judgement = Judgement(entry["name"], entry["language"], self.runner)

    def judge_all(self) -> Judgement:
        """Judge the project; raises NotJudged or NotFetched where that is not possible here."""
        self._make_repository()
        suite = self._prepare_bare()
        self._run_init(suite.base)
        cheats = self._make_branches(suite)
        for branch in ("honest", "mutant", *CHEATS):
            if branch in ("honest", "mutant") or branch in cheats:
                self._judge_branch(branch, suite.base, cheats.get(branch))
            else:
                self.judgement.branches[branch] = "–"
        files = {(status.st_dev, status.st_ino): status for status in (file.lstat() for file in self.home.rglob("*"))}
        self.judgement.megabytes = sum(status.st_blocks for status in files.values()) / 2048
        return self.judgement

    def _make_repository(self) -> None:
        shutil.rmtree(self.room, ignore_errors=True)
        self.room.mkdir(parents=True)
        fetch_tree(self.entry, self.repository)
        for path, text in self.entry.get("files", {}).items():
            (self.repository / path).parent.mkdir(parents=True, exist_ok=True)
            (self.repository / path).write_text(text)
        run_git(self.repository, "init", "-q", "-b", "main")
        run_git(self.repository, "add", "-A")
        run_git(self.repository, "commit", "-qm", "first")

    def _prepare_bare(self) -> Suite:
        """Clone the repository, set it up by hand and run its tests there."""
        self.bare.parent.mkdir()
        run_git(self.room, "clone", "-q", str(self.repository), str(self.bare))
        if setup := self.entry.get("setup"):
            made = run_bare(setup, self.bare, "exit", 900)
            if not made.is_green:
                raise NotJudged(f"setup by hand fails: {made.output[-300:]}")
        limit = 600.0

        def run() -> Outcome:
            return run_bare(self.entry["bare"], self.bare, self.runner, limit)

        run()  # caches are warm afterwards
        base = run()
        if not base.is_green and not base.passed:
            raise NotJudged(f"the bare suite ends with {base.exit_code}: {base.output[-600:]}")
        self.judgement.bare_s, limit = base.seconds, 20 + 5 * base.seconds
        paths = [path for path in self._list_tracked() if path.is_file()]
        tests = [path for path in paths if self._matches_any(path, self.entry["tests"])]
        product = [path for path in paths if self._matches_any(path, self.entry["product"]) and path not in tests]
        return Suite(self.bare, product, tests, run, base)

    def _list_tracked(self) -> list[Path]:
        return [self.bare / name for name in run_git(self.bare, "ls-files").splitlines()]

    def _matches_any(self, path: Path, patterns: list[str]) -> bool:
        return any(fnmatch.fnmatch(str(path.relative_to(self.bare)), pattern) for pattern in patterns)

    def _run_init(self, base: Outcome) -> None:
        """Let init write the commands; where they are not the expected ones, go on with those that are."""
        done = self._run_perdure("init")
        file = self.repository / "perdure.toml"
        commands = (
            [test["command"] for test in tomllib.loads(file.read_text()).get("test", [])] if file.exists() else []
        )
        wanted = self.entry["expected"]
        self.judgement.init = "right" if any(re.search(wanted, command) for command in commands) else "wrong"
        if done.returncode and base.is_green:
            self.judgement.init = "red"
        if self.judgement.init != "right":
            self.judgement.add_fault("init", f"{' | '.join(commands) or 'no command'}: {_last_lines(done)}")
        if self.judgement.init != "right" or self.entry.get("lints"):
            command = self.entry.get("command", self.entry["bare"])
            setup = f"commands = [{json.dumps(self.entry['setup'])}]\n" if self.entry.get("setup") else ""
            file.write_text(f'version = 1\n[setup]\n{setup}[[test]]\nname = "tests"\ncommand = {json.dumps(command)}\n')
        run_git(self.repository, "add", "-A")
        run_git(self.repository, "commit", "-qm", "perdure")
        run_git(self.bare, "pull", "-q")

    def _make_branches(self, suite: Suite) -> dict[str, int]:
        """Make the branches; return which cheats the bare suite is green with."""
        honest, cheats = self.entry["honest"], {}
        texts = tomllib.loads((HERE / "honest.toml").read_text())[honest.get("kind", self.runner)]
        for part in ("product", "test"):
            text = texts[part]
            for name in ("module", "package", "asserts", "annotation", "tested"):
                text = text.replace(f"{{{name}}}", honest.get(name, ""))
            path = self.bare / honest[part]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(path.read_text() + text if path.exists() else text.lstrip("\n"))
        for path, (old, new) in honest.get("edits", {}).items():
            before = (self.bare / path).read_text()
            assert old in before, f"{path} does not hold {old!r}"
            (self.bare / path).write_text(before.replace(old, new, 1))
        outcome = suite.run()
        if suite.base.passed is not None and outcome.passed != suite.base.passed + 1:
            raise NotJudged(f"the honest change is not one test more: {outcome.passed}: {outcome.output[-800:]}")
        self._commit_branch("honest", suite)
        for mutant in itertools.islice(find_mutants(suite, self.entry["name"]), 3):
            self.mutant = mutant
            self._write_mutant(mutant)
            self._commit_branch("mutant", suite)
            for cheat in CHEATS:
                self._write_mutant(mutant)
                if bend_tests(suite, mutant, cheat):
                    self._commit_branch(cheat, suite)
                    cheats[cheat] = mutant.outcome.failed or 0
                run_git(self.bare, "checkout", "-q", "-f", "main")
            if cheats:
                return cheats
        if not hasattr(self, "mutant"):
            raise NotJudged("the bare suite sees no mutant")
        return cheats

    def _write_mutant(self, mutant: Mutant) -> None:
        write_line(mutant.path, mutant.line, mutant.after)

    def _commit_branch(self, branch: str, suite: Suite) -> None:
        """Commit what is in the bare clone as this branch, and go back to main."""
        run_git(self.bare, "checkout", "-q", "-B", branch)
        honest = self.entry["honest"]
        edited = {str(path.relative_to(self.bare)) for path in (*suite.product, *suite.tests)} | set(
            honest.get("edits", {})
        )
        names = [name for name in run_git(self.bare, "diff", "--name-only", "HEAD").splitlines() if name in edited]
        if branch == "honest":
            names += [honest["product"], honest["test"]]
        run_git(self.bare, "add", "-f", "-A", "--", *names)
        run_git(self.bare, "commit", "-qm", branch)
        run_git(self.bare, "push", "-q", "-f", "origin", branch)
        run_git(self.bare, "checkout", "-q", "-f", "main")

    def _judge_branch(self, branch: str, base: Outcome, cheated: int | None) -> None:
        begun = time.perf_counter()
        config = ["--config", str(self.config)] if self.config.exists() else []
        done = self._run_perdure("run", "test", "--repo", str(self.repository), "--branch", branch, "--json", *config)
        took = time.perf_counter() - begun
        (self.room / f"{branch}.json").write_text(done.stdout)
        try:
            result = json.loads(done.stdout)
            tests = result["tests"]
        except (ValueError, KeyError):
            result, tests = {}, None
        if not config and (allowed := re.search(r"fix: \[\[test\]\] (writes = \[.*?\])", result.get("message") or "")):
            self.judgement.init = "wrong"
            self.judgement.add_fault("init", f"nothing can be judged: {result['message']}")
            text = (self.repository / "perdure.toml").read_text()
            self.config.write_text(re.sub(r"(?m)^command = .*", lambda hit: f"{hit[0]}\n{allowed[1]}", text))
            self._judge_branch(branch, base, cheated)
            return
        if not tests or tests["status"] not in ("green", "red"):
            self.judgement.branches[branch] = "not judged"
            self.judgement.add_fault("not judged", f"{branch}: {result.get('message') or _last_lines(done)}")
            return
        said, line = tests["status"], tests["experiment"] or ""
        if tests["tampered"]:
            said = "tampered"
        elif tests["promises"]:
            said = "promise"
        self.judgement.branches[branch] = said
        summary = next((step["summary"] for step in result["steps"] if step["step"] == "run_tests"), "")
        if branch == "honest":
            self.judgement.verdict_s = sum(
                step["duration_s"] for step in result["steps"] if step["step"] == "run_tests"
            )
            self._check_honest(said, tests, line, summary, base)
        elif branch == "mutant":
            if said not in ("red", "tampered"):
                self.judgement.add_fault("false green", f"mutant {self._describe_init()}: {summary}")
            elif self.mutant.outcome.failed is not None and self.judgement.counts == "equal":
                new = self.mutant.outcome.failed - (base.failed or 0)
                if new not in (tests["new_failures"], tests["new_failures"] + tests["flaky"]):
                    self.judgement.add_fault(
                        "counts", f"mutant has {new} new failures, said {tests['new_failures']}: {summary}"
                    )
        elif said == "green":
            self.judgement.add_fault("false green", f"{branch} with {self._describe_init()}: {summary}")
        elif said == "promise" and self.judgement.counts == "equal":
            self._check_line(branch, line, base, (base.passed or 0) - (cheated or 0) + (base.failed or 0))
        print(f"  {self.judgement.name} {branch}: {said} in {took:.0f} s: {summary}", flush=True)

    def _check_honest(self, said: str, tests: dict[str, Any], line: str, summary: str, base: Outcome) -> None:
        if said != "green" and not self._is_green_bare("honest"):
            raise NotJudged("the honest change does not fit the project: its command is red bare, too")
        if said != "green":
            self.judgement.add_fault(
                "false tampered" if said == "tampered" else "false red", f"honest: {said}: {summary}"
            )
        if base.passed is None:
            self.judgement.counts = "exit code"
        elif (tests["passed"], tests["known_failures"]) == (base.passed + 1, base.failed or 0):
            self.judgement.counts = "equal"
        elif tests["passed"] is None:
            self.judgement.counts = "none"
        else:
            self.judgement.counts = f"{tests['passed']} ≠ {base.passed + 1}"
            self.judgement.add_fault(
                "counts", f"honest: bare passed {base.passed + 1}, said {tests['passed']}: {summary}"
            )
        if said == "green" and self.judgement.counts == "equal":
            self._check_line("honest", line, base, base.passed or 0)
            if re.search(r"new tests? pass|missed|not asked: the runner", line):
                self.judgement.add_fault("false line", f"honest: {line}")
            news = re.search(r"(\d+) new tests? fails? without it", line)
            if news is None and "does not build" not in line:
                self.judgement.add_fault(
                    "false line", f"honest: its new test fails without it, and that is not said: {line}"
                )
            elif news is not None and news[1] != "1":
                self.judgement.add_fault("false line", f"honest: it has 1 new test: {line}")

    def _is_green_bare(self, branch: str) -> bool:
        """Run the commands of perdure.toml by hand on a branch."""
        run_git(self.bare, "checkout", "-q", "-f", branch)
        text = (self.repository / "perdure.toml").read_text()
        outcomes = [run_bare(test["command"], self.bare, "exit") for test in tomllib.loads(text)["test"]]
        run_git(self.bare, "checkout", "-q", "-f", "main")
        return all(outcome.is_green for outcome in outcomes)

    def _check_line(self, branch: str, line: str, base: Outcome, passed: int) -> None:
        """Compare `x/y of main's own tests pass` with the bare suite: of y all passed bare, what is not asked apart."""
        hit = re.search(r"(\d+)/(\d+) of main's own tests pass", line)
        unasked = sum(int(number) for number in re.findall(r"(\d+) not asked", line))
        if hit is None:
            return
        if (int(hit[1]) + unasked, int(hit[2]) + unasked) != (passed, base.passed):
            self.judgement.add_fault("false line", f"{branch}: bare {passed}/{base.passed}: {line}")

    def _describe_init(self) -> str:
        mutant = self.mutant
        where = f"{mutant.path.relative_to(self.bare)}:{mutant.line + 1}"
        return f"{where} `{mutant.before.strip()}` → `{mutant.after.strip()}`"

    def _run_perdure(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PERDURE_HOME": str(self.home)}
        return subprocess.run(
            [PERDURE, *words], cwd=self.repository, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=1800, check=False,
        )  # fmt: skip

    def close(self) -> None:
        """End the home's server and worker."""
        if self.home.exists():
            self._run_perdure("down")


def _last_lines(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in f"{done.stdout[-2000:]}\n{done.stderr[-1000:]}".splitlines() if line.strip()]
    return " / ".join(lines[-8:])


@contextlib.contextmanager
def open_project(entry: dict[str, Any]) -> Iterator[Project]:
    project = Project(entry, CACHE / "rooms" / entry["name"])
    try:
        yield project
    finally:
        project.close()


def render_table(judgements: list[Judgement]) -> str:
    """Return the results as a Markdown table, its sums below it."""
    kinds = ("false green", "false red", "false tampered", "false line")
    heads = (
        "project",
        "language",
        "runner",
        "init",
        "counts",
        "honest",
        "mutant",
        *CHEATS,
        "false lines",
        "bare s",
        "verdict s",
        "MB",
    )
    rows = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for one in judgements:
        lines = sum(fault.startswith("false line") for fault in one.faults)
        cells = [one.name, one.language, one.runner, one.init, one.counts]
        cells += [one.branches.get(branch, "–") for branch in ("honest", "mutant", *CHEATS)]
        cells += [str(lines), f"{one.bare_s:.1f}", f"{one.verdict_s:.1f}", f"{one.megabytes:.0f}"]
        rows.append(f"| {' | '.join(cells)} |")
    faults = [fault for one in judgements for fault in one.faults]
    sums = [f"{sum(fault.startswith(kind) for fault in faults)} {kind}" for kind in kinds]
    right = sum(one.init == "right" for one in judgements)
    equal = sum(one.counts == "equal" for one in judgements)
    asked = sum(one.counts not in ("exit code", "none") for one in judgements)
    judged = sum(said not in ("–", "not judged") for one in judgements for said in one.branches.values())
    text = f"{len(judgements)} projects, {len({one.language for one in judgements})} languages, "
    text += f"{len({one.runner for one in judgements})} runners, {judged} branches: init right in {right}, "
    return "\n".join([*rows, "", f"{text}counts equal in {equal} of {asked}, {', '.join(sums)}."])


def print_judgements(judgements: list[Judgement]) -> None:
    print(f"\n{render_table(judgements)}\n")
    for fault in (f"{one.name}: {fault}" for one in judgements for fault in one.faults):
        print(f"- {fault}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("projects", nargs="*", help="their names; none: all")
    parser.add_argument("--fixed", action="store_true", help="the ten that CI takes")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave all repositories and homes in the cache, not only where there is a fault",
    )
    parser.add_argument("--within", type=float, metavar="S", help="begin no project after so many seconds")
    parser.add_argument("--table", action="store_true", help="judge nothing: print what was said last about each")
    options = parser.parse_args()
    entries = tomllib.loads((HERE / "catalogue.toml").read_text())["project"]
    chosen = [
        e
        for e in entries
        if (e["name"] in options.projects or not options.projects) and (e.get("fixed") or not options.fixed)
    ]
    kept = CACHE / "judged"
    kept.mkdir(parents=True, exist_ok=True)
    if options.table:
        files = [kept / f"{entry['name']}.json" for entry in chosen]
        print_judgements([Judgement(**json.loads(file.read_text())) for file in files if file.exists()])
        return 0
    judgements, left_out, started = [], [], time.perf_counter()
    for entry in chosen:
        begun = time.perf_counter()
        if options.within and begun - started > options.within:
            left_out.append(f"{entry['name']} (no time)")
            continue
        missing = [program for program in entry.get("programs", []) if shutil.which(program) is None]
        with open_project(entry) as project:
            try:
                if missing:
                    raise NotJudged(f"{', '.join(missing)} is not installed here")
                judgements.append(project.judge_all())
                (kept / f"{entry['name']}.json").write_text(json.dumps(vars(judgements[-1])))
            except (NotFetched, NotJudged, subprocess.SubprocessError) as error:
                left_out.append(entry["name"])
                print(f"LEFT OUT {entry['name']}: {error}", flush=True)
        if not options.keep and not project.judgement.faults:
            shutil.rmtree(project.room, ignore_errors=True)
        print(f"{entry['name']}: {time.perf_counter() - begun:.0f} s", flush=True)
    print_judgements(judgements)
    if left_out:
        print(f"\nLEFT OUT, AND SAYS NOTHING ABOUT PERDURE: {', '.join(left_out)}")
    return 1 if any(fault.startswith("false") for one in judgements for fault in one.faults) else 0


if __name__ == "__main__":
    sys.exit(main())

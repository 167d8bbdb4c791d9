"""Honest repositories, requests, issues and files: the nearest ordinary thing to each attack, which has to be taken."""

# ruff: noqa: E501 - one case a line reads as the table it is

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from perdure.adapters.git.target import resolve_repository
from perdure.adapters.git.workspace import Workspace
from perdure.models.delivery.request import parse_request
from perdure.text import visible
from tests.attack import branches, exhausting_files, exhausting_words, repository
from tests.attack.table import Case, Ground, Seen, works
from tests.repositories import git, make_target

REPOSITORY, BRANCHES, STRANGER, INPUT = "honest repository", "honest branch names", "honest request", "ordinary input"

SETTINGS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "a name and an address": (("user.name", "Ada"), ("user.email", "ada@example.org")),
    "line endings converted": (("core.autocrlf", "input"),),
    "names not normalised": (("core.precomposeUnicode", "false"), ("core.quotePath", "false")),
    "modes ignored": (("core.fileMode", "false"),),
    "its own ignore file": (("core.excludesFile", "{place}/ignore"),),
    "a remote with another push address": (("remote.origin.pushurl", "https://example.org/x.git"),),
    "a second remote": (
        ("remote.fork.url", "https://example.org/fork.git"),
        ("remote.fork.fetch", "+refs/heads/*:refs/remotes/fork/*"),
    ),
    "a branch that tracks": (("branch.main.remote", "origin"), ("branch.main.merge", "refs/heads/main")),
    "rebase on pull": (("pull.rebase", "true"), ("rebase.autoStash", "true")),
    "a merge tool": (("merge.tool", "vimdiff"), ("merge.conflictStyle", "diff3")),
    "a diff algorithm": (("diff.algorithm", "histogram"), ("diff.renames", "true")),
    "colours": (("color.ui", "auto"), ("color.status.added", "green")),
    "an alias that is words of git": (("alias.st", "status -sb"),),
    "a template of messages": (("commit.template", "{place}/message"),),
    "large files in LFS": (
        ("filter.lfs.clean", "git-lfs clean -- %f"),
        ("filter.lfs.smudge", "git-lfs smudge -- %f"),
        ("filter.lfs.required", "true"),
    ),
    "sparse checkout": (("core.sparseCheckout", "false"), ("index.version", "4")),
    "a file that is included, with settings": (("include.path", "{place}/more"),),
    "submodules that recurse": (("submodule.recurse", "true"), ("fetch.recurseSubmodules", "on-demand")),
    "an editor that waits": (("core.editor", "code --wait"),),
    "its maintenance": (("gc.auto", "256"), ("maintenance.auto", "false")),
    "a protocol version": (("protocol.version", "2"),),
}


def _configured(settings: tuple[tuple[str, str], ...]) -> Callable[[Ground], Seen]:
    def use(at: Ground) -> Seen:
        place = Path(tempfile.mkdtemp(dir=at.root))
        (place / "more").write_text("[core]\n\tabbrev = 12\n")
        (place / "ignore").write_text("*.log\n")
        work = repository._checkout(place)
        for key, value in settings:
            git(work, "config", key, value.replace("{place}", str(place)))
        said = repository._as_a_person_delivers(work)
        return works(said == "read", said)

    return use


TREES: Mapping[str, Mapping[str, str]] = {
    "files in directories": {"a/b/c.txt": "x\n", "a/d.txt": "y\n"},
    "names in other scripts": {"résumé.txt": "é\n", "漢字/ファイル": "x\n"},
    "blanks and signs in names": {"a b.txt": "x\n", "50% #1 (draft)!.txt": "y\n", "it's.txt": "z\n"},
    "attributes": {".gitattributes": "*.txt text eol=lf\n*.png binary\n", "a.txt": "x\n"},
    "ignored files": {".gitignore": "*.log\nbuild/\n", "a.log": "x\n", "b.txt": "y\n"},
    "a workflow and hooks as files": {".github/workflows/ci.yml": "on: push\n", "hooks/pre-commit": "#!/bin/sh\n"},
    "settings of editors": {".editorconfig": "root = true\n", ".vscode/settings.json": "{}\n"},
    "an empty file": {"empty": "", "other/.gitkeep": ""},
    "a long line": {"long": "x" * 200_000},
}


def _tree(files: Mapping[str, str]) -> Callable[[Ground], Seen]:
    def put(workspace: Workspace, _: Path, __: Path) -> None:
        for name, text in files.items():
            (workspace.path / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace.path / name).write_text(text)

    def use(at: Ground) -> Seen:
        seen = repository._agents_worktree(put)(at)
        return works(seen.words.startswith("snapshot, restore"), seen.words)

    return use


TEMPLATES = {
    "perdure/{id}": "perdure/calc-issue-1", "{id}": "calc-issue-1", "feature/{slug}": "feature/add-sub",
    "{kind}/{slug}": "", "issue-{issue}": "issue-1", "{issue}/{slug}": "1/add-sub", "ai/{id}/work": "ai/calc-issue-1/work",
    "release-1.2/{id}": "release-1.2/calc-issue-1", "user@host/{id}": "user@host/calc-issue-1",
    "UPPER/{id}": "UPPER/calc-issue-1", "topics/{id}": "topics/calc-issue-1", "main-{id}": "main-calc-issue-1",
    "a.b/{id}": "a.b/calc-issue-1", "{id}+x": "calc-issue-1+x", "é/{id}": "é/calc-issue-1", "x_{issue}": "x_1",
    "{slug}-{issue}": "add-sub-1", "v1/{id}": "v1/calc-issue-1",
}  # fmt: skip
TITLES = (
    "Add sub", "Make parse_duration accept '1h30m'", "Fix #12 in the parser", "A main thing", "Rename HEAD_SIZE",
    "Größe der Liste", "修正", "Crash: KeyError('x') at line 3", "50% slower since 1.2", "[docs] typo", "a" * 300,
    "Use <b> & co", "What does `git push --force` do?", "TODO", "1", "v2.0.0",
)  # fmt: skip


def _template(template: str, expected: str) -> Callable[[Ground], Seen]:
    def use(at: Ground) -> Seen:
        name = branches._settled(at, template)
        return works(name == expected or (not expected and name.endswith("/add-sub")), name)

    return use


def _title(title: str) -> Callable[[Ground], Seen]:
    def use(at: Ground) -> Seen:
        name = branches._settled(at, "perdure/{slug}", title)
        return works(name.startswith("perdure/") and 8 < len(name) < 120, name)

    return use


REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "words alone": {}, "words with signs and lines": {"request": "Fix `a < b` & \"c\"\n\n- one\n- 50 %\n"},
    "words in other scripts": {"request": "Añade una función 数を足す"}, "a budget": {"budget_usd": 5.0},
    "tokens": {"tokens": 100_000}, "a base": {"base": "develop"}, "phases": {"phases": ["build", "test", "ship"]},
    "gates": {"gates": ["plan", "pull_request"]}, "labels": {"labels": ["team-a"]}, "an issue": {"issue": 12},
    "an issue by its address": {"repository": "https://github.com/o/r", "issue": "https://github.com/o/r/issues/12"},
    "an existing branch": {"branch": "topic", "phases": ["review"]}, "tests that may change": {"allow_test_changes": True},
    "a setting": {"config": "version = 1\n[limits]\ntest_fixes = 2\n"}, "a request of 40 KB": {"request": "word " * 8_000},
    "a version of the specification": {"spec_version": 1},
}  # fmt: skip


def _requested(fields: Mapping[str, Any]) -> Callable[[Ground], Seen]:
    def use(_: Ground) -> Seen:
        request = parse_request({"repository": "https://github.com/o/r", "request": "x", **fields})
        return works(request.repository, f"taken: {request.repository}")

    return use


def _of_many(name: str) -> Callable[[Ground], Seen]:
    """A repository as people name it."""

    def use(at: Ground) -> Seen:
        place = Path(tempfile.mkdtemp(dir=at.root)) / "my #1 50% repos é"
        target = make_target(place / "calc.git")
        clone = place / "clone"
        subprocess.run(["git", "clone", "-q", str(target), str(clone)], check=True, timeout=60, capture_output=True)
        (clone / "deep").mkdir()
        subprocess.run(
            ["git", "-C", str(clone), "worktree", "add", "-q", str(place / "tree")],
            check=True,
            timeout=60,
            capture_output=True,
        )
        named, cwd = {
            "path": (str(target), place), "relative": ("calc.git", place), "dot": (".", clone), "below": (".", clone / "deep"),
            "checkout": (str(clone), place), "git": (str(clone / ".git"), place), "worktree": (str(place / "tree"), place), "slash": (f"{clone}/", place),
        }[name]  # fmt: skip
        found = resolve_repository(named, cwd)
        return works(found.heads.default == "main" and Path(found.url).name == "calc.git", found.url)

    return use


def _shown(text: str) -> Callable[[Ground], Seen]:
    return lambda _: works(visible(text) == text, visible(text))


_PLAN = '{"title": "Add sub", "problem": "p", "solution": "s", "relevant_files": ["calc.py"], "tasks": [{"title": "a", "details": "b", "files": ["calc.py"]}], "validation": ["run it"]}'

INPUTS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "settings with all their parts": (exhausting_words._toml, 'version = 1\n[delivery]\nphases = ["plan", "build", "test", "review", "ship"]\n[setup]\ncommands = ["true"]\ntimeout = "10m"\n[[test]]\nname = "unit"\ncommand = "pytest -q"\n[limits]\nbudget_usd = 5.0\ntime = "2h"\n[git]\nbranch = "perdure/{id}"\n'),
    "settings with remarks and blank lines": (exhausting_words._toml, "# ours\n\nversion = 1 # the first\n\n"),
    "settings with a dotted key": (exhausting_words._toml, "version = 1\nlimits.test_fixes = 2\n"),
    "settings with dots in a string": (exhausting_words._toml, 'version = 1\n[setup]\ncommands = ["a.b.c.d.e.f.g.h = 1"]\n'),
    "settings with a string of many lines": (exhausting_words._toml, 'version = 1\n[setup]\ncommands = ["""\nmake \\\n  all"""]\n'),
    "settings with twenty test commands": (exhausting_words._toml, "version = 1\n" + "".join(f"[[test]]\nname = 't{n}'\ncommand = 'make t{n}'\n" for n in range(20))),
    "settings with nested lists": (exhausting_words._toml, 'version = 1\n[protect]\npaths = ["a/**", "b", "[c]"]\n'),
    "settings with a long command": (exhausting_words._toml, f"version = 1\n[[test]]\nname = 'x'\ncommand = 'pytest {'-k a ' * 200}'\n"),
    "settings with Windows line ends": (exhausting_words._toml, "version = 1\r\n[limits]\r\ntest_fixes = 2\r\n"),
    "a duration in hours and minutes": (exhausting_words._toml, "version = 1\n[limits]\ntime = '1h30m'\n"),
    "a branch of all places": (exhausting_words._branch, "x/{id}"),
    "a plan": (exhausting_words._plan, "title: Add sub\nproblem: None subtracts\nsolution: Add it\nrelevant_files: [calc.py]\ntasks:\n- title: Add sub\n  details: Beside add\n  files: [calc.py]\nvalidation: [run it]\n"),
    "a request": (exhausting_words._request, '{"repository": "/r", "request": "x", "budget_usd": 5}'),
    "a request with nested lists": (exhausting_words._request, '{"repository": "/r", "request": "x", "phases": ["build"], "labels": ["a", "b"]}'),
    "a request with escapes": (exhausting_words._request, '{"repository": "/r", "request": "\\u00e9 \\ud83d\\ude00 \\n"}'),
    "a JUnit report": (exhausting_files._report, '<?xml version="1.0"?><testsuites><testsuite name="s"><testcase classname="a" name="n" time="0.1"/><testcase classname="a" name="m"><failure message="x">y</failure></testcase></testsuite></testsuites>'),
    "a JUnit report of ten thousand tests": (exhausting_files._report, "<testsuite>" + "".join(f'<testcase classname="a" name="n{n}"/>' for n in range(10_000)) + "</testsuite>"),
    "a JUnit report with entities of XML": (exhausting_files._report, '<testsuite><testcase classname="a" name="a &lt; b &amp;&amp; c &#233;"/></testsuite>'),
    "a JUnit report with properties and output": (exhausting_files._report, '<testsuite><properties><property name="a" value="b"/></properties><testcase name="n"><system-out><![CDATA[<x>]]></system-out></testcase></testsuite>'),
    "a Makefile": (lambda text: exhausting_files._detected("Makefile", text), "PY ?= python3\ntest: build\n\t$(PY) -m pytest -q\nbuild:\n\ttrue\n"),
    "a go.mod": (lambda text: exhausting_files._detected("go.mod", text), "module example.com/x\n\ngo 1.22\n\nrequire (\n\tgolang.org/x/text v0.14.0\n)\n"),
    "a tox.ini": (lambda text: exhausting_files._detected("tox.ini", text), "[tox]\nenvlist = py{310,311}-{a,b}\n[testenv]\ndeps = pytest\ncommands = pytest {posargs}\n"),
    "a workflow with an anchor": (lambda text: exhausting_files._detected(".github/workflows/a.yml", text), "on: push\njobs:\n  a: &a\n    steps:\n    - run: pytest\n  b: *a\n"),
    "a guide": (lambda text: exhausting_files._detected("CONTRIBUTING.md", text), "# Tests\n\n    pytest -q\n\n```\nmake test\n```\n"),
    "a noxfile": (lambda text: exhausting_files._detected("noxfile.py", text), "import nox\n@nox.session\ndef tests(s):\n    s.run('pytest', '-q')\n"),
    "a package.json": (lambda text: exhausting_files._detected("package.json", text), '{"scripts": {"test": "jest", "lint": "eslint ."}, "devDependencies": {"jest": "*"}}'),
    "a pyproject.toml": (lambda text: exhausting_files._detected("pyproject.toml", text), '[project]\nname = "x"\nversion = "1"\n[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'),
    "a pom.xml": (lambda text: exhausting_files._detected("pom.xml", text), "<project><!-- ours --><modelVersion>4.0.0</modelVersion></project>"),
    "a tool's output with colours": (lambda text: _cleaned(text), "\x1b[31mred\x1b[0m and plain\n"),
    "a tool's output of twenty thousand lines": (lambda text: _cleaned(text), "a line of it\n" * 20_000),
    "a model's plan": (lambda text: _answered(text), _PLAN),
}  # fmt: skip


FILES = {
    "Cargo.toml": '[package]\nname = "x"\nversion = "0.1.0"\n', "Gemfile": "source 'https://rubygems.org'\ngem 'rspec'\n", "Rakefile": "task :test do\n  sh 'rspec'\nend\n",
    "composer.json": '{"require-dev": {"phpunit/phpunit": "*"}}', "build.gradle": "plugins { id 'java' }\n", "build.gradle.kts": "plugins { java }\n",
    "CMakeLists.txt": "project(x)\nenable_testing()\n", "justfile": "test:\n  pytest -q\n", "requirements.txt": "pytest==8.0\n", "setup.cfg": "[tool:pytest]\ntestpaths = tests\n",
    "setup.py": "from setuptools import setup\nsetup(name='x')\n", "pytest.ini": "[pytest]\naddopts = -q\n", ".travis.yml": "script:\n- make test\n", "README.md": "# x\n\nRun `make test`.\n",
    "t/a.t": "use Test::More tests => 1;\nok(1);\n", "spec/a_spec.lua": "describe('x', function() end)\n", "test/a.bats": "@test 'x' { true; }\n", "package.swift": "// none\n",
    "mix.exs": "defmodule X.MixProject do\nend\n", "Pipfile": "[dev-packages]\npytest = '*'\n", "environment.yml": "dependencies:\n- pytest\n", ".gitlab-ci.yml": "test:\n  script:\n  - pytest\n",
    "Dockerfile": "FROM python\nRUN pytest\n", "jest.config.js": "module.exports = {};\n", "vitest.config.ts": "export default {};\n",
}  # fmt: skip
"""Files that maintainers write, each read for their tests."""

PARTS = {
    "phases": '[delivery]\nphases = ["build", "test"]', "a document": "[delivery]\ndocument = true", "a draft on failure": '[delivery]\non_failure = "draft"', "notes": '[delivery]\nnotes = ["AGENTS.md", "docs/style.md"]',
    "hosts of setup": '[setup]\nhosts = ["packages.example.com"]', "copied files": '[setup]\ncopy = [".env.test"]', "a test that is not required": "[[test]]\nname = 'lint'\ncommand = 'ruff check .'\nrequired = false",
    "a test in a directory": "[[test]]\nname = 'api'\ncommand = 'go test ./...'\ndirectory = 'api'", "a report of its own": "[[test]]\nname = 'u'\ncommand = 'make'\nreport = 'junit'", "fewer fixes": "[limits]\nreview_fixes = 0",
    "gates": '[gates]\nbefore = ["plan", "pull_request"]', "a model of a step": '[steps.plan]\nmodel = "claude-opus-5-5"\neffort = "high"', "an app": "[app]\nstart = 'npm run dev -- --port $FRONTEND_PORT'\nready = 'http://127.0.0.1:$FRONTEND_PORT/'\npages = ['/']",
    "ports": "[ports]\nneed = true", "a signature": "[git]\nsign_off = true", "protected paths": '[protect]\npaths = [".github/**"]', "labels and reviewers": '[ship]\nlabels = ["perdure"]\nreviewers = ["ada"]',
    "untested work": "[ship]\nallow_untested = true", "a test side": '[tests]\nside = ["spec/**"]', "attempts": "[delivery]\nattempts = 2",
}  # fmt: skip
"""Parts of perdure.toml, as its guide has them."""


def _cleaned(text: str) -> None:
    from perdure.adapters.system.output import clean_output

    if not clean_output(text).strip():
        raise ValueError("nothing is left")


def _answered(text: str) -> None:
    from perdure.adapters.agents.builtin.answers import parse_answer
    from perdure.models.phases import Step

    parse_answer(Step.PLAN, text)


def _read(reader: Callable[[str], object], text: str) -> Callable[[Ground], Seen]:
    def use(_: Ground) -> Seen:
        reader(text)
        return works(True, "read")

    return use


def _case(group: str, name: str, use: Callable[[Ground], Seen], expected: str = "taken") -> Case:
    return Case(group, name, expected, use, benign=True)


CASES = (
    *(_case(REPOSITORY, f"the checkout's configuration has {name}", _configured(one), "read") for name, one in SETTINGS.items()),
    *(_case(REPOSITORY, f"the agent's worktree has {name}", _tree(one), "kept, shown and committed") for name, one in TREES.items()),
    *(_case(BRANCHES, f"[git] branch is {name}", _template(name, wanted), wanted or "feature/add-sub") for name, wanted in TEMPLATES.items()),
    *(_case(BRANCHES, f"an issue is called {title[:60]!r}", _title(title), "a name of its words") for title in TITLES),
    *(_case(STRANGER, f"a request with {name}", _requested(fields)) for name, fields in REQUESTS.items()),
    *(_case(STRANGER, f"the target named by its {name}", _of_many(name)) for name in ("path", "relative", "dot", "below", "checkout", "git", "worktree", "slash")),
    *(_case(STRANGER, f"words shown as they are: {text[:30]!r}", _shown(text), "not changed") for text in ("plain", "naïve — “quotes”", "数を足す", "a < b && c > d", "50 % #1 ~/x")),
    *(_case(INPUT, name, _read(*one), "read") for name, one in INPUTS.items()),
    *(_case(INPUT, f"a file {name}", _read(partial(exhausting_files._detected, name), text), "read") for name, text in FILES.items()),
    *(_case(INPUT, f"settings with {name}", _read(exhausting_words._toml, f"version = 1\n{text}\n"), "read") for name, text in PARTS.items()),
)  # fmt: skip

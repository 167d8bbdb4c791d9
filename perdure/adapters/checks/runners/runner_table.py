"""Test runners that are known by a row of data each: how one is recognised, what makes it write a report and of which
form, how one test is asked for again. Canaries (tests that must fail) are not made for them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from perdure.adapters.checks.junit import CaseIdentifier
from perdure.adapters.checks.runners.base import (
    Invocation,
    ReportRequest,
    Runner,
    RunPlace,
    escape_js_regex,
    own_name,
    relative_file,
)
from perdure.models.checks.report import TestCase

_REPORTERS = Path(__file__).with_name("reporters")


def reporter_source(name: str) -> str:
    """Return the source of a reporter of Perdure's (`mocha.js`), in JavaScript behind the functions that write
    JUnit."""
    text = (_REPORTERS / name).read_text()
    return f"{(_REPORTERS / 'junit.js').read_text()}\n{text}" if name.endswith(".js") else text


@dataclass(frozen=True)
class TableRunner(Runner):
    """A runner that is a row of TABLE_RUNNERS.

    command          the program and the words behind it, as a regular expression that matches their beginning
    arguments        what is appended to the command; `{file}` is the report, `{reporter}` the reporter of Perdure's
    env              variables that ask for a report, filled in the same way; one that is set already is kept before it
    reporter         the file in `reporters/` that the runner loads, and the name that it gets beside the report
    own_reports      options, as a regular expression, by which a command says itself what is written where
    report_name      the name of the report
    events           as in Invocation
    writing          as in Invocation
    is_by_class      a test is known by its class, not by its file
    report_required  whether the command runs nothing else (`ruby test.rb` may be a script)
    select           gives the arguments for one test, from its name, without the file where that is its identity; None:
                     none can be selected
    """

    name: str
    command: str
    tests: str
    arguments: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    reporter: tuple[str, str] | None = None
    own_reports: str = r"(?!)"
    report_name: str = "junit.xml"
    events: Literal["", "tap", "titled tap"] = ""
    writing: Literal["through", "anyhow"] = "through"
    is_by_class: bool = False
    select: Callable[[str], tuple[str, ...]] | None = None
    report_required: bool = True
    early_stop: str = ""
    roots: frozenset[str] = frozenset({"test", "tests"})
    settings: str = ""
    shared: frozenset[str] = frozenset({"Makefile"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return re.match(self.command, " ".join([program, *rest, ""])) is not None

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how the runner is run so that it writes a report; None where it needs arguments and they cannot be
        appended, or the command asks for a report itself."""
        if (self.arguments and request.separator is None) or re.search(self.own_reports, request.command):
            return None
        reporter = request.file.with_name(self.reporter[1]) if self.reporter else None
        file = request.file.with_name(self.report_name)
        texts = {"file": shlex.quote(str(file)), "reporter": shlex.quote(str(reporter)), "directory": str(file.parent)}
        variables = {key: request.env_with_options(key, value.format(**texts))[key] for key, value in self.env.items()}
        arguments = self.arguments.format(**texts)
        # A redirection is the shell's, and so stands before what separates the command from arguments.
        separator = "" if not arguments or arguments.startswith(">") else request.separator
        return Invocation(
            f"{request.command}{separator} {arguments}".rstrip(),
            self.name,
            variables,
            file,
            files={reporter: reporter_source(self.reporter[0])} if reporter and self.reporter else {},
            report_required=self.report_required,
            separator=request.separator,
            has_arguments=bool(arguments) and not arguments.startswith(">"),
            events=self.events,
            writing=self.writing,
        )

    def case_identifier(self, place: RunPlace) -> CaseIdentifier:
        """Return what tells a test by its class and name where they are its identity, else by its file and name."""

        def identify_case(attributes: Mapping[str, str]) -> tuple[str, str]:
            file, name = relative_file(attributes.get("file", ""), place.shown_at), attributes.get("name") or "unnamed"
            group = attributes.get("class") or attributes.get("classname", "") if self.is_by_class else file
            return file, f"{group}::{name}" if group not in ("", name) else name

        return identify_case

    def selection_arguments(self, case: TestCase) -> tuple[str, ...]:
        name = case.name if self.is_by_class else own_name(case)
        return self.select(name) if self.select else ()


def _select_minitest(name: str) -> tuple[str, ...]:
    """Return the option for one method of a class; in front of the name of a spec stands its number."""
    group, _, method = name.rpartition("::")
    return "-n", f"/^{re.escape(group)}#(test_\\d+_)?{re.escape(method)}$/"


_JAVASCRIPT = r"\.[cm]?[jt]sx?"
_JS_TESTS = rf"(?:.*/)?[^/]*[._-](?:test|spec){_JAVASCRIPT}|(?:.*/)?test(?:[-_][^/]*)?{_JAVASCRIPT}"
_JS_DIRECTORIES = rf"|(?:(?:.*/)?(?:tests?|__tests__)|spec)/(?:.*/)?[^/]*{_JAVASCRIPT}"
_JS_ROOTS = frozenset({"test", "tests", "spec", "__tests__"})
_JS_SHARED = frozenset({"package.json", ".npmrc", "tsconfig.json", "Makefile"})

_RSPEC = TableRunner(
    "rspec",
    "rspec ",
    r"(?:.*/)?[^/]*_spec\.rb|(?:.*/)?spec/.*\.rb",
    env={"SPEC_OPTS": "--require {reporter} --format PerdureReport --out {file} --format progress"},
    reporter=("rspec.rb", "reporter.rb"),
    select=lambda name: ("-e", name),
    early_stop=r"\s--fail-fast(?=[\s=]|$)",
    roots=frozenset({"spec"}),
    settings=r"\.rspec",
    shared=frozenset({"Gemfile", "Rakefile"}),
)
_MINITEST = TableRunner(
    "minitest",
    r"(rails test|ruby .*\btest\S*\.rb) ",
    r"(?:.*/)?(?:[^/]*_test|test_[^/]*)\.rb|(?:.*/)?test/.*\.rb",
    env={"RUBYOPT": "-r{reporter}"},
    reporter=("minitest.rb", "reporter.rb"),
    is_by_class=True,
    select=_select_minitest,
    report_required=False,
    shared=frozenset({"Gemfile", "Rakefile"}),
)

TABLE_RUNNERS = (
    TableRunner(
        "mocha",
        r"_?mocha(?!.* (-w|--watch) ) ",
        _JS_TESTS + _JS_DIRECTORIES,
        arguments="--reporter {reporter}",
        reporter=("mocha.js", "reporter.cjs"),
        select=lambda name: ("-g", f"^{escape_js_regex(name.replace(' > ', ' '))}$"),
        early_stop=r"\s(-b|--bail)(?=[\s=]|$)",
        roots=_JS_ROOTS,
        settings=r"\.mocharc(\.[^/]*)?|mocha\.opts",
        shared=_JS_SHARED,
    ),
    TableRunner(
        "ava",
        r"ava(?!.* (-w|--watch|--reset-cache) ) ",
        _JS_TESTS + _JS_DIRECTORIES,
        env={"NODE_OPTIONS": "--import={directory}/reporter.mjs"},
        reporter=("ava.js", "reporter.mjs"),
        select=lambda name: ("--match", name),
        early_stop=r"\s--fail-fast(?=[\s=]|$)",
        roots=_JS_ROOTS,
        settings=r"ava\.config\.[cm]?js",
        shared=_JS_SHARED,
    ),
    TableRunner(
        "tape",
        "tape ",
        _JS_TESTS + _JS_DIRECTORIES,
        arguments="> {file}",
        report_name="output.tap",
        events="titled tap",
        roots=_JS_ROOTS,
        shared=_JS_SHARED,
    ),
    TableRunner(
        "prove",
        "prove ",
        r".*\.t",
        env={"PERL_TEST_HARNESS_DUMP_TAP": "{directory}/tap"},
        report_name="tap",
        events="tap",
        writing="anyhow",
        roots=frozenset({"t", "xt"}),
        settings=r"\.proverc",
        shared=frozenset({"Makefile", "Makefile.PL", "Build.PL", "cpanfile", "dist.ini"}),
    ),
    TableRunner(
        "bats",
        "bats ",
        r".*\.bats",
        arguments="--tap > {file}",
        own_reports=r"\s(-F|--formatter|-c|--count)\b",
        report_name="output.tap",
        events="tap",
        select=lambda name: ("--filter", f"^{re.sub('[^A-Za-z0-9_ ]', '.', name)}$"),
    ),
    TableRunner(
        "ctest",
        r"ctest(?!.* (--build-and-test|-[NSDMT]|--show-only\S*) ) ",
        r"(?:.*/)?(?:tests?/.*|test_[^/]*|[^/]*(?:[._-]t|T)ests?|tests?)\.(?:c|cc|cpp|cxx|h|hpp)",
        arguments="--output-on-failure --output-junit {file}",
        own_reports="--output-junit",
        writing="anyhow",
        is_by_class=True,
        select=lambda name: ("-R", f"^{re.escape(name)}$"),
        early_stop=r"\s--stop-on-failure(?=\s|$)",
        shared=frozenset({"CMakeLists.txt", "CMakePresets.json", "Makefile"}),
    ),
    TableRunner(
        "phpunit",
        r"(phpunit|simple-phpunit|phpunit\.phar|pest|artisan test) ",
        r"(?:.*/)?[^/]*Test\.php|(?:.*/)?tests/.*\.php",
        arguments="--log-junit {file}",
        own_reports="--log-junit",
        is_by_class=True,
        select=lambda name: ("--filter", f"/^{re.escape(name).replace('/', '.')}$/"),
        early_stop=r"\s--stop-on-(?:failure|error|defect)(?=\s|$)",
        settings=r"phpunit(\.dist)?\.xml(\.dist)?",
        shared=frozenset({"composer.json", "Makefile"}),
    ),
    _RSPEC,
    replace(_RSPEC, name="rake spec", command="rake spec ", select=None),
    _MINITEST,
    replace(_MINITEST, name="rake test", command=r"rake test(:\w+)? ", select=None),
)
"""No single test can be asked for of prove and tape, nor behind `rake`, which takes no arguments."""

"""Test runners that are known by a table of data each, in runner_table.toml: how one is recognised, what makes it write
a report, how one test is asked for again, how a canary (a test that must fail) is written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from perdure.adapters.checks.junit import CaseIdentifier
from perdure.adapters.checks.runners import base
from perdure.adapters.checks.runners.base import Canaries, Invocation, ReportRequest, RunPlace
from perdure.models.checks.report import TestCase
from perdure.text import shell_word

_REPORTERS = Path(__file__).with_name("reporters")


def reporter_source(name: str) -> str:
    """Return the source of a reporter of Perdure's (`mocha.js`), in JavaScript behind the functions that write
    JUnit."""
    text = (_REPORTERS / name).read_text()
    return f"{(_REPORTERS / 'junit.js').read_text()}\n{text}" if name.endswith(".js") else text


@dataclass(frozen=True)
class TableRunner(base.Runner):
    """A runner of the table.

    command          the program and the words behind it, as a regular expression that matches their beginning
    arguments        what is appended to the command; `{file}` is the report, `{reporter}` the reporter of Perdure's,
                     `{directory}` where both are, `{url}` the reporter's address, `{node_reporter}` the reporter as
                     NODE_OPTIONS quotes it
    unquotable       characters that the runner cannot be told in the report's path: with one, it writes none
    env              variables that ask for a report, filled in the same way; one that is set already is kept before it
    reporter         the file in `reporters/` that the runner loads, and the name that it gets beside the report
    own_reports      options, as a regular expression, by which a command says itself what is written where
    report_name      the name of the report
    collect, events, writing, report_required  as in Invocation
    is_by_class      a test is known by its class, not by its file
    again            the arguments for one test, its name filled in (see selection_arguments); empty: it has none
    canary           the source of a test that must fail, `NAME` in the place of its name; empty: there is none
    canary_place     a regular expression; a canary is put into a file behind its match, and into no file without one;
                     its group `variable` stands in the place of `VARIABLE` in the canary
    """

    name: str
    command: str
    tests: str
    arguments: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    reporter: Sequence[str] = ("", "")
    own_reports: str = r"(?!)"
    unquotable: str = ""
    report_name: str = "junit.xml"
    collect: Sequence[str] = ()
    events: Literal["", "tap", "titled tap", "nested tap"] = ""
    writing: Literal["through", "once", "anyhow"] = "through"
    report_required: bool = True
    is_by_class: bool = False
    again: Sequence[str] = ()
    canary: str = ""
    canary_place: str = r"\Z"
    early_stop: str = ""
    inline_tests: str = ""
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
        file = request.file.with_name(self.report_name)
        if {*str(file)} & {*self.unquotable}:
            return None
        reporter = file.with_name(self.reporter[1] or "none")
        files = {reporter: reporter_source(self.reporter[0])} if self.reporter[1] else {}
        texts = {
            "file": shell_word(file),
            "directory": file.parent,
            "reporter": shell_word(reporter),
            "url": reporter.as_uri(),
            "node_reporter": base.quote_for_node(reporter),
        }
        filled = {key: text.format_map(texts) for key, text in {"": self.arguments, **self.env}.items()}
        arguments = filled.pop("")
        # A redirection is the shell's: what separates the command from its arguments comes behind it.
        is_redirection = not arguments or arguments.startswith(">")
        return Invocation(
            f"{request.command}{'' if is_redirection else request.separator} {arguments}".rstrip(),
            self.name,
            {key: request.env_with_options(key, text)[key] for key, text in filled.items()},
            None if self.collect else file,
            tuple(self.collect),
            files=files,
            report_required=self.report_required,
            separator=request.separator,
            has_arguments=not is_redirection,
            events=self.events,
            writing=self.writing,
        )

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return a canary for each of these files that has a place for one."""
        places = {path: re.search(self.canary_place, text) for path, text in files.items() if self.canary}
        texts, names = dict[str, str](), dict[str, str]()
        for number, (path, place) in enumerate(places.items()):
            if place is not None:
                name, text = f"{token}{number}", files[path]
                names[name] = path
                canary = self.canary.replace("NAME", name).replace("VARIABLE", place.groupdict().get("variable", ""))
                texts[path] = f"{text[: place.end()]}\n{canary}\n{text[place.end() :]}"
        return Canaries(texts, names)

    def case_identifier(self, place: RunPlace) -> CaseIdentifier:
        """Return what tells a test by its class and name where they are its identity, else by its file and name."""

        def identify_case(attributes: Mapping[str, str]) -> tuple[str, str]:
            file = base.relative_file(attributes.get("file", ""), place.shown_at)
            name = attributes.get("name") or "unnamed"
            if not file and (place_of_test := re.fullmatch(r"(.+\.\w+):\d+", attributes.get("classname", ""))):
                file = base.relative_file(place_of_test[1], place.shown_at)
            group = attributes.get("class") or attributes.get("classname", "")
            group = group if self.is_by_class or not file else file
            return file, f"{group}::{name}" if group not in ("", "test", name) else name

        return super().case_identifier(place) if self.collect else identify_case

    def selection_arguments(self, *cases: TestCase) -> tuple[str, ...]:
        """Return the arguments for one test, none for several: in `again`, `{name}` is its name, `{class}` and
        `{method}` (without parameters) its parts, `{regex}` (`{class_regex}`, `{method_regex}`) the same as a regular
        expression, `{loose}` with any character for all but letters, digits and blanks, `{title}` its titles as
        JavaScript joins them."""
        if len(cases) != 1:
            return ()
        (case,) = cases
        name = case.name if self.is_by_class else base.own_name(case)
        group, method = base.group_and_method(case)
        values = {
            "name": name,
            "class": group,
            "method": method,
            "loose": re.sub("[^A-Za-z0-9_ ]", ".", name),
            "title": base.escape_js_regex(base.own_name(case).replace(" > ", " ")),
        }
        for key, text in (("regex", name), ("class_regex", group), ("method_regex", name.rpartition("::")[2])):
            values[key] = re.escape(text).replace("/", ".")
        return tuple(word.format(**values) for word in self.again)


def load_runners(classes: Mapping[str, type[TableRunner]]) -> Iterator[TableRunner]:
    """Yield the runners of the table in its order.

    classes  those of runners that do more than the table says, by their names
    """
    rows: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    for name, row in rows.items():
        for key, value in rows.get(row.pop("like", name), row).items():
            row.setdefault(key, value)
        row.update({key: frozenset(row[key]) for key in ("roots", "shared") if key in row})
        yield classes.get(name, TableRunner)(name=name, **row)

# mypy: ignore-errors
# It wraps what unittest itself leaves untyped, in whatever Python the repository has.
"""`python -m unittest` with a JUnit report, run in its place: the report's path is the first argument, then come
unittest's own. `manage.py test` loads DjangoRunner from here.

The runner in `runners.python` copies this file beside the report and puts it into the command line. Runs inside the
sandbox, under the repository's Python: nothing of Perdure is imported.
"""

import inspect
import os
import sys
import time
import unittest
from html import escape  # xml.sax.saxutils loads half of urllib: 22 ms, more than a small suite takes


def main():
    """Run unittest with the arguments behind the report's path, write the report when its tests have ended, and end the
    process with unittest's own exit code.

    The report is opened before anything of the repository's is loaded. As with `-m unittest`, the working directory is
    first on the path, unless Python was told not to.
    """
    report_file = open(sys.argv[1], "w", encoding="utf-8")  # noqa: SIM115  # before anything of the repository's is loaded
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd()
    outcomes = []

    class ReportingRunner(unittest.TextTestRunner):
        resultclass = reporting_result(unittest.TextTestResult, outcomes)

        def run(self, test):
            result = super().run(test)
            report_file.write(junit_report(outcomes))
            report_file.close()
            return result

    unittest.main(module=None, argv=["python -m unittest", *sys.argv[2:]], testRunner=ReportingRunner)


def reporting_result(base, outcomes):
    """Return a class of results, derived from `base`, that adds to `outcomes` what junit_report takes."""

    class ReportingResult(base):
        def startTest(self, test):
            self.started_at, self.problems = time.monotonic(), []
            super().startTest(test)

        def stopTest(self, test):
            super().stopTest(test)
            duration_s = time.monotonic() - self.started_at
            if self.problems:
                outcomes.append((test, *self.problems[0], duration_s))
            else:
                outcomes.append((test, "", "", duration_s))

        def record_problem(self, test, kind, text):
            if isinstance(test, unittest.TestCase):
                self.problems.append((kind, text))
            else:  # setUpClass, setUpModule
                outcomes.append((test, kind, text, 0.0))

        def addError(self, test, err):
            self.record_problem(
                test, "error", self._exc_info_to_string(err, test)
            )  # first: what follows may have been patched
            super().addError(test, err)

        def addFailure(self, test, err):
            self.record_problem(test, "failure", self._exc_info_to_string(err, test))
            super().addFailure(test, err)

        def addSkip(self, test, reason):
            self.record_problem(test, "skipped", reason)
            super().addSkip(test, reason)

        def addExpectedFailure(self, test, err):
            super().addExpectedFailure(test, err)
            self.record_problem(test, "skipped", "expected to fail")

        def addUnexpectedSuccess(self, test):
            super().addUnexpectedSuccess(test)
            self.record_problem(test, "failure", "expected to fail, and did not")

        def addSubTest(self, test, subtest, err):
            super().addSubTest(test, subtest, err)
            if err is not None:
                kind = "failure" if issubclass(err[0], test.failureException) else "error"
                self.record_problem(test, kind, str(subtest))

    return ReportingResult


def __getattr__(name):
    """Return Django's test runner of the settings, made to write the report above this file, as `DjangoRunner`."""
    if name != "DjangoRunner":
        raise AttributeError(name)
    from django.conf import settings
    from django.test.utils import get_runner

    class DjangoRunner(get_runner(settings)):
        def get_resultclass(self):
            self.outcomes = []
            return reporting_result(super().get_resultclass() or unittest.TextTestResult, self.outcomes)

        def run_suite(self, suite, **options):
            result = super().run_suite(suite, **options)
            file = os.path.join(os.path.dirname(os.path.dirname(__file__)), "junit.xml")
            with open(file, "w", encoding="utf-8") as report_file:
                report_file.write(junit_report(self.outcomes))
            return result

    return DjangoRunner


def junit_report(outcomes):
    """Return the text of a JUnit file with one case for each outcome.

    outcomes  for each test: the test, `error`, `failure`, `skipped` or empty, the text of that, and its duration in
              seconds
    """
    cases = []
    for test, kind, text, duration_s in outcomes:
        file = source_file(test)
        inner = type(test).__qualname__ if isinstance(test, unittest.TestCase) else ""
        group = f"{file[:-3].replace('/', '.')}.{inner}" if file and inner else inner
        name = getattr(test, "_testMethodName", "") or str(test)
        body = f"<{kind} message={quote_attribute(text[:200])}>{escape(replace_invalid(text))}</{kind}>" if kind else ""
        attributes = f"classname={quote_attribute(group)} name={quote_attribute(name)} file={quote_attribute(file)}"
        cases.append(f'<testcase {attributes} time="{duration_s:.3f}">{body}</testcase>')
    return '<?xml version="1.0"?>\n<testsuites><testsuite>' + "\n".join(cases) + "</testsuite></testsuites>\n"


def source_file(test):
    """Return the file of a test's class, relative to the working directory; empty where it is unknown or elsewhere."""
    try:
        file = os.path.relpath(inspect.getfile(type(test)))
    except (TypeError, OSError, ValueError):
        return ""
    return "" if file.startswith("..") else file.replace(os.sep, "/")


def quote_attribute(text):
    """Quote a text as the value of an attribute; a reader would take bare ends of lines in it for blanks."""
    return f'"{escape(replace_invalid(text))}"'.replace("\n", "&#10;").replace("\t", "&#9;")


def replace_invalid(text):
    """Replace each character that XML cannot hold by `?`."""
    return "".join(c if c in "\t\n" or " " <= c < "\ud800" or "\ue000" <= c < "\ufffe" else "?" for c in text)


if __name__ == "__main__":
    main()

# mypy: ignore-errors
# It wraps what unittest itself leaves untyped, in whatever Python the repository has.
"""`python -m unittest` with a report: run in its place, the report's file first, then its own arguments.

Runs inside the sandbox, under the repository's Python: nothing of Perdure is imported.
"""

import inspect
import os
import sys
import time
import unittest
from html import escape  # xml.sax.saxutils loads half of urllib: 22 ms, more than a small suite takes


def main():
    """Be what `-m unittest` is: the working directory first on the path, unless Python was told not to."""
    opened = open(sys.argv[1], "w", encoding="utf-8")  # noqa: SIM115  # before anything of the repository's is loaded
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd()
    found = []

    class Result(unittest.TextTestResult):
        def startTest(self, test):
            self.began, self.bad = time.monotonic(), []
            super().startTest(test)

        def stopTest(self, test):
            super().stopTest(test)
            took = time.monotonic() - self.began
            if self.bad:
                found.append((test, *self.bad[0], took))
            else:
                found.append((test, "", "", took))

        def say(self, test, kind, text):
            if isinstance(test, unittest.TestCase):
                self.bad.append((kind, text))
            else:  # setUpClass, setUpModule
                found.append((test, kind, text, 0.0))

        def addError(self, test, err):
            self.say(test, "error", self._exc_info_to_string(err, test))  # first: what follows may have been patched
            super().addError(test, err)

        def addFailure(self, test, err):
            self.say(test, "failure", self._exc_info_to_string(err, test))
            super().addFailure(test, err)

        def addSkip(self, test, reason):
            self.say(test, "skipped", reason)
            super().addSkip(test, reason)

        def addExpectedFailure(self, test, err):
            super().addExpectedFailure(test, err)
            self.say(test, "skipped", "expected to fail")

        def addUnexpectedSuccess(self, test):
            super().addUnexpectedSuccess(test)
            self.say(test, "failure", "expected to fail, and did not")

        def addSubTest(self, test, subtest, err):
            super().addSubTest(test, subtest, err)
            if err is not None:
                kind = "failure" if issubclass(err[0], test.failureException) else "error"
                self.say(test, kind, str(subtest))

    class Runner(unittest.TextTestRunner):
        resultclass = Result

        def run(self, test):
            result = super().run(test)
            opened.write(report(found))
            opened.close()
            return result

    unittest.main(module=None, argv=["python -m unittest", *sys.argv[2:]], testRunner=Runner)


def report(found):
    """The JUnit file."""
    cases = []
    for test, kind, text, took in found:
        file = place(test)
        inner = type(test).__qualname__ if isinstance(test, unittest.TestCase) else ""
        group = f"{file[:-3].replace('/', '.')}.{inner}" if file and inner else inner
        name = getattr(test, "_testMethodName", "") or str(test)
        body = f"<{kind} message={quoted(text[:200])}>{escape(clean(text))}</{kind}>" if kind else ""
        words = f"classname={quoted(group)} name={quoted(name)} file={quoted(file)}"
        cases.append(f'<testcase {words} time="{took:.3f}">{body}</testcase>')
    return '<?xml version="1.0"?>\n<testsuites><testsuite>' + "\n".join(cases) + "</testsuite></testsuites>\n"


def place(test):
    """The file of a test's class, relative to the working directory."""
    try:
        file = os.path.relpath(inspect.getfile(type(test)))
    except (TypeError, OSError, ValueError):
        return ""
    return "" if file.startswith("..") else file.replace(os.sep, "/")


def quoted(text):
    """The value of an attribute, in which a reader would take ends of lines for blanks."""
    return f'"{escape(clean(text))}"'.replace("\n", "&#10;").replace("\t", "&#9;")


def clean(text):
    """Without what XML cannot hold."""
    return "".join(c if c in "\t\n" or " " <= c < "\ud800" or "\ue000" <= c < "\ufffe" else "?" for c in text)


if __name__ == "__main__":
    main()

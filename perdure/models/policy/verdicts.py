"""Tests, how they are judged, findings, reviews and screenshots."""

from __future__ import annotations

TEST_TAIL_CHARS = 8_000
"""Of a test command's output in the report: what the fix step reads, longer than any runner's summary."""

CASE_MESSAGE_CHARS = 2_000
"""Of one test case's failure message; pytest's longest useful traceback, not its captured output."""

JUNIT_BYTES = 32 * 1024 * 1024
"""A report file larger than this (some 100,000 cases) is not read: parsing takes ten times its size in memory."""

FAILURES_NAMED = 10
"""Failing tests named in a verdict; the others are in the report."""

FAILURE_TAIL_LINES = 20
FAILURE_TAIL_CHARS = 1_500
"""Of a failed command's output in an error: fits into FAILURE_CHARS together with what, where and fix."""

BASELINE_AGE_S = 7 * 86_400.0
"""How long the base commit's results are believed: what setup installs without a lock file moves on within weeks."""

RERUN_TESTS_MOST = 10
"""New failures of one command that are tried once more, each alone: more at once are no accident, and each costs the
runner's start."""

JUNIT_CASES = 200_000
"""Of one report: what JUNIT_BYTES of ordinary cases are. Each takes a kilobyte, and a file can hold ten times more."""

JUNIT_DEPTH = 500
"""Elements within each other in a report: nested suites are some ten deep, and expat keeps a hundred bytes for each."""

JUNIT_TAG_BYTES = 4 * 1024 * 1024
"""Of one tag with its attributes, kept whole until it ends: a failure's message may be one, a million of them not."""

APP_S = 240.0
"""To start an application and take its pages: what has not been taken by then is not, and the delivery goes on."""

APP_READY_S = 90.0
APP_PROBE_S = 3.0
"""For an application to answer at `[app] ready`, which may build first; and for one answer of it."""

APP_AT_ONCE_S = 5.0
APP_DETACHED_S = 5.0
"""Ended so soon, it did not start at all; and how long a server that it left behind has to answer."""

APP_TAIL_CHARS = 1_500
"""Of what an application wrote before it ended: a traceback's last lines, which say why."""

APP_PAGES_MOST = 10
APP_PAGE_S = 15.0
APP_SETTLE_S = 2.0
"""Pages taken; seconds for one to load, and for what it fetches after that: ten slow pages fit into APP_S."""

BROWSER_START_S = 30.0
"""Chromium starts in 0.5 s; on a busy host with a cold disk it was seen to take 8 s."""

BROWSER_HEAP_MB = 512
"""Of JavaScript in one page: a page that allocates without an end is its own failure, not the host's."""

PAGE_ERRORS = 3
PAGE_ERROR_CHARS = 200
PAGE_NOTE_CHARS = 800
"""Errors of a page's console that are told, the length of one, and of all that is said about a page."""

PICTURE_WIDTH, PICTURE_VIEWPORT, PICTURE_HEIGHT = 1280, 800, 2000
"""Pixels: a desk's window, and a long page down to 2000, the most the model's API takes where there are many images."""

PICTURE_BYTES = 3_500_000
"""Of one PNG: base64 makes 4.7 MB of it, and the model's API takes 5. A page of text has 100 KB."""

PICTURES_SHOWN = 8
PICTURES_SHOWN_BYTES = 6_000_000
"""Given to a reviewer: some 25,000 tokens; each turn sends them again, and a request may have 32 MB."""

PIXELS_PER_TOKEN = 750
"""How the model's API counts an image; larger ones are scaled down before, so that this is the most."""

TAMPER_FILE_BYTES = 1024**2
"""Of one file whose tests are read: no test that people write is larger."""

TAMPER_TOTAL_BYTES = 32 * 1024**2
"""Of all files that differ between two commits and are read: what a worker can hold twice; later ones count as
unreadable."""

TAMPER_TESTS_MOST, TAMPER_LINE_CHARS = 3_000, 500
"""Tests of one file that are read by name, and of a line that is looked at: no person writes more."""

TAMPER_DEPTH = 4
"""Scripts behind scripts that are followed to what runs the tests."""

TAMPER_HITS_MOST = 50
"""Hits and changed tests listed in a report: a person undoes a whole commit long before the fiftieth."""

TAMPER_EVIDENCE_CHARS = 600
"""Of one hit's evidence: some ten lines, enough to see what it was and what it is."""

PATCH_FILE_BYTES = 16 * 1024**2
"""Of one file whose change is looked into; larger ones are nothing a person wrote, and count as binary."""

PATCH_BATCH_BYTES = 48 * 1024**2
PATCH_BATCH_FILES = 500
"""Compared by one git command, so that a change of any size needs some 200 MB at once, and its paths fit into argv."""

FINDINGS_MOST = 50
"""Listed for one change, the worst first; the others are counted. Nobody mends more in one round."""

FINDING_BINARY_BYTES = 1024**2
"""A binary file above this stays in every clone for ever: it blocks. Libraries of icons and fonts are below."""

FINDING_IMAGE_BYTES = 256 * 1024
"""A picture up to this size is nothing to talk about."""

FINDING_LINK_BYTES = 4096
"""Of a symbolic link's target: PATH_MAX of Linux; what is longer is no path."""

FINDING_NAME_CHARS = 200
"""Of a path in a finding: names may have 4096 bytes."""

CHANGE_LINES = (1_000, 20_000)
CHANGE_FILES = (60, 1_000)
"""Lines and files without lock files: from the first on a reviewer misses things, from the second nobody reviews it."""

SECRET_LINE_CHARS, SECRET_LINE_OVERLAP = 1_000, 300
"""Longer lines are searched in pieces: some patterns take the square of a line's length. No token is longer."""

SECRET_KEY_LINES = 8
"""Behind the first line of a private key, until its first line of content: headers of encrypted ones have four."""

SECRET_VALUES = 200
SECRET_LEAKS = 5_000
"""Different secrets that are searched for in the base, where they may have been before; more are taken for new. And the
most that are noted: a change with that many is not published."""

SECRET_COMMITS = 100
"""Commits of a delivery that are searched beside its last one: each attempt makes one, and there are twenty at most."""

REVIEW_ISSUES_TOLD = 20
"""Wrong places of a review that are told back to the reviewer in one word, each in a line."""

PROMISE_NAME_CHARS = 200
"""Of a test's name where a review is asked about it: the name that comes back is compared with it."""

QUOTE_WORDS = 3
"""That a quote from the request has at least: two words stand in any text by accident."""

REPORT_CASES = 40
REPORT_CASES_CHARS = 40_000
"""Failing tests of one command in a prompt, and what all their messages take: the cause of more is in the first."""

TEST_SCRIPT_BYTES = 100_000
"""Of a command that selects one test by its name: Linux takes 128 KiB in one argument, and a name can be longer."""

EXPERIMENT_PATIENCE = 3
"""Times the time-out of a command, for its runs in an experiment: three are beside each other where it had been alone,
and one that is cut off would look as if the change had broken it."""

EXPERIMENT_AGAIN = 3
"""Times that the base's tests run on a change once more when some fail there and pass on the base, and the change would
be called tampered for it: a test that fails every second time is then believed in one of thirty, not of four."""

EXPERIMENT_HELD = 500
"""Paths of the test side that are mounted read-only, each a directory with all that is in it where it can be: a mount
takes some 0.1 ms. What is beyond is only looked at afterwards."""

EXPERIMENT_FILE_CHARS = 4_000
"""Of each version of a test file beside a changed promise: what a reviewer reads."""

EXPERIMENT_NAMED = 50
"""Promises, and names in each list of an experiment: a person decides long before the fiftieth."""

GLOB_ALTERNATIVES = 64
"""Patterns that braces and groups of one may stand for: `**/*.{test,spec}.[cm]?[jt]s?(x)` stands for four."""

SIDE_PATTERNS, SIDE_PATTERN_CHARS = 100, 300
"""Patterns of tests that are read of a repository's settings, and characters of each: every path is held against all of
them, and what people write is a tenth of it."""

SIDE_READ_FILES = 200
"""Files that are read for what they name as tests: settings, `conftest.py`, scripts that a command runs."""

EXPERIMENT_LINES = 60
"""Of the difference between both versions of one test: what a person reads beside a decision."""

EXPERIMENT_WORDS = 8
"""Names in one line about an experiment; its report has them all."""

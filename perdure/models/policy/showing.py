"""What is shown: reading, watching, reports, verification, demo and rehearsals."""

from __future__ import annotations

from datetime import timedelta

REHEARSAL_STOP_S = 2.0
"""How long a stopping rehearsal waits for clients to take the end of their streams."""

REHEARSAL_CALLS_KEPT = 1000
REHEARSAL_BODIES_KEPT = 100
"""Calls a rehearsal keeps for tests to look at, and how many with their request: a long one has megabytes."""

PAGE_CHARS = 16_000
"""Of a log or diff in one read: at most 64 KiB, whatever the characters."""

WATCH_EVERY_S = 0.5
"""How often a live view looks: a death and the turn after it take about a second, and both are to be seen."""

LOGS_EVERY_S = 1.0
"""Between two looks of `logs --follow` whether a turn has ended: turns take seconds."""

WATCH_SILENCE_S = 10.0
"""Without an answer for this long no worker runs: one that starts on a busy host needs several seconds."""

WATCH_LOST_S = 60.0
"""How long a live view waits for a server that has gone away: one that is restarted is back in seconds."""

DEMO_S = 900.0
"""For a demo that nobody watches: twenty times what it takes, so that a build server is not kept for ever."""

DEMO_KILLS = 2
DEMO_KILLS_MOST = 4
"""How often the demo kills its worker by itself: once while a reply arrives, once while a tool runs; and the most."""

KNIFE_LOOK_S = 0.02
"""How often the demo looks for the moment to kill: a reply is to be cut in its middle, not at its end."""

RUNS_READ = 50
"""Runs of one delivery that a report looks at: retries and continuations; a month of daily retries."""

ARTIFACT_PAGE_BYTES = 45_000
"""Of an artifact that is read through Temporal: 60,000 characters in base64, below 64 KiB with what is around them."""

ARTIFACT_READ_BYTES = 8_000_000
"""Of one artifact read that way, some 180 pages and a few seconds; a screenshot of a long page is below 2 MB."""

TURNS_PAGE_CHARS = 48_000
TURN_SAID_CHARS = 4_000
"""Of what a turn said and did, in a report: a screen; `perdure logs` has the rest. A page holds a dozen of them."""

REPORT_TESTS_SHOWN = 1_000
"""Rows of tests that passed, one command each: folded away, and still not the whole of a suite of 50,000."""

REPORT_DIFF_CHARS = 400_000
"""Of the change, in a report: 10,000 lines, which is more than anybody reads on one page."""

REPORT_TEXT_CHARS = 20_000
"""Of any one text on a report's page: a command's last lines have some 8,000."""

REPORT_PICTURES_BYTES = 24_000_000
"""Of all screenshots in one page, before base64: mail takes it, and browsers open it without a pause."""

REPORT_PATIENCE = timedelta(seconds=15)
"""For a host to begin with what a report asks it: a living one does so in milliseconds, unless all its slots are full;
a person waits for it, and the rest of the report does not need it."""

REPORT_ROWS_SHOWN = 60
"""Rows of the timeline: more do not fit a screen; the table below it has all of them."""

VERIFY_PAGE = 30
"""Checkpoints, commits and pull requests in one answer to `perdure verify`: of each 150 to 400 bytes, so that even
together they stay near RESULT_BYTES."""

VERIFY_ANSWER = timedelta(minutes=2)
"""For one such answer: to walk a thousand checkpoints of a large repository, or to wait for a forge; then it is said
that nobody answers."""

VERIFY_REPLAY_S = 120.0
"""To replay a delivery's histories: a second for a thousand events, and the start of a Python process before it."""

STAT_FILES = 20
STAT_PAGES = 16
"""Files named where a change is shown to be approved, and pages (64 KiB) of it that are read for that."""

SPENT_TIME = timedelta(minutes=2)
"""To read a spend log takes milliseconds where the host lives; where it does not, nothing else waits for it."""

LOOKED_AT_MOST = 200
"""Running workflows that `doctor` asks the server about one by one, the newest: a few milliseconds each."""

TEST_NAME_CHARS = 60
"""Of a test command that nobody gave a name: its own words stand in front of its result, on one line."""

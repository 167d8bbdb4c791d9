"""Every limit, timeout and retry of the engine, each with its reason. Users' own settings: perdure.models.config."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Defaults:
    """What a delivery may use when nobody says otherwise."""

    test_fixes: int = 4  # a fifth attempt was not seen to succeed where four failed (reference: seeds, system A)
    review_fixes: int = 3  # a reviewer that still finds blockers after three rounds needs a person
    turns_per_step: int = 60  # three times what a well-sized task needs; ends runaway loops
    time: str = "2h"  # wall time of a whole delivery
    budget_usd: float = 5.00  # several times a typical delivery; a surprise stays small
    host_budget_usd: float = 100.0  # the most one request may ask for on a host nobody configured
    host_time: str = "24h"  # likewise for time
    max_tokens: int = 16_000  # of one reply; a longer edit is better done in two
    slots: int = 32  # activities at once on one host: turns mostly wait for the model


DEFAULTS = Defaults()

TASK_QUEUE = "perdure"
"""Workflows and whatever may run on any host."""

HEARTBEAT_EVERY = timedelta(seconds=1)
"""From a task of its own: cancel, reset and pause reach an activity only with its heartbeat."""

HEARTBEAT_TIMEOUT = timedelta(seconds=30)
"""A busy two-core host was seen to be 9 s late; deaths are reported by the living long before this."""

HEARTBEAT_THROTTLE = timedelta(seconds=1)
"""The SDK passes a heartbeat on only after 0.8 × timeout (24 s) unless told otherwise (holes.md H3)."""

RETRY_PAUSE = timedelta(seconds=1)
"""Between attempts that failed for a passing reason; a death is redone after 1 ms by its reporter."""

RETRY_PAUSE_MODEL_S = (1.0, 60.0)
"""First and longest pause after a model error that did not say when to come back; doubles, with jitter."""

RETRY_AFTER_CAP_S = 600.0
"""A model API may ask for hours; ten minutes keeps the Web UI's countdown honest and costs one request."""

REPLIES_CUT_PER_TURN = 5
"""Replies that broke off on their way may have been billed, each of them: a line this bad needs a person."""

DISK_FULL_PAUSE = timedelta(seconds=10)
"""Until a full disk is looked at again: somebody has to make room first."""

DISK_FREE_TURN_BYTES = 32 * 1024**2
"""To ask the model: a reply that cannot be written down would be paid for again and again."""

DEATHS_PER_TURN = 3
"""The same turn seeing its worker die this often is the turn's fault, not the host's (holes.md H6)."""

IDENTICAL_CALLS_NUDGE = 3
IDENTICAL_CALLS_STOP = 5
"""The same tool call with the same input in a row: first a word to the model, then the end of the step."""

REASKS = 1
"""How often a model may correct a structured answer that did not validate."""

LEASE_PROOF_S = 5.0
"""How long a new attempt waits for proof that the previous writer is gone before it takes a new directory."""

TOOL_TIMEOUT_S = 120.0
TOOL_TIMEOUT_MAX_S = 600.0
"""One command of the agent: the default, and the most it may ask for."""

TOOL_OUTPUT_HEAD = 10_000
TOOL_OUTPUT_TAIL = 20_000
"""Characters of a tool's output that the model sees; the beginning says what ran, the end says how it ended."""

MODEL_CONNECT_S = 10.0
MODEL_SILENCE_S = 120.0
"""Reaching the model API, and the longest it may send nothing: its pings come every few seconds."""

READ_FILE_BYTES = 10_000_000
READ_LINES = 2000
READ_LINE_CHARS = 2000
"""What the read tool takes and shows at once: the largest file, lines, and characters of one line."""

SEARCH_S = 20.0
SEARCH_FILES = 50_000
SEARCH_FILE_BYTES = 2_000_000
SEARCH_RESULTS = 200
SEARCH_LINE_CHARS = 300
"""One grep or glob: seconds, files looked at, the largest of them, results and characters a result shown."""

MATERIAL_CHARS = 200_000
"""Of one plan, diff or report in an opening message, some 60,000 tokens: what is longer is better read with tools."""

OUTPUT_FILE_BYTES = 50_000_000
"""Where a command's output file is cut off and the command ended: a flood fills neither memory nor disk."""

OUTPUT_POLL_S = 0.1
"""How often a running command's output file is measured; RLIMIT_FSIZE bounds what fits in between."""

SANDBOX_FILE_BYTES = 8 * 1024**3
"""RLIMIT_FSIZE of a sandboxed process: any single file. Low limits break linkers and test databases (SIGXFSZ)."""

SANDBOX_TMPFS_BYTES = 1024**3
"""Of each private /tmp, /dev/shm and home: they are memory, which no RLIMIT counts; /run gets a sixteenth."""

SANDBOX_NICE = 10
"""Fifty test suites on two cores must not starve the worker into missed deadlines (holes.md H40)."""

SANDBOX_END_S = 10.0
"""How long killed processes may take to be gone; only one stuck in the kernel takes longer than milliseconds."""

SANDBOX_LOCK_WAIT_S = 1.0
"""A proof of death holds the lock for milliseconds; whoever holds it longer owns the workspace."""

SANDBOX_PROBE_S = 20.0
"""One `true` in all namespaces takes 10 ms; a host this slow would time out every test as well."""

RESULT_BYTES = 16 * 1024
"""An activity's result, checked before its effect is reported: 2 MiB would fail after the effect (holes.md H36)."""

FAILURE_CHARS = 2000
"""Of an exception's message in history; the whole text stays on the host."""

GIT_TIMEOUT_S = 300.0
"""One git command; fetching and pushing over a slow line is the longest."""

WORKSPACE_KEPT = timedelta(days=7)
"""After a failure, for a person to look at."""

WORKER_IDLE_EXIT = timedelta(minutes=15)
"""A worker that `deliver` started by itself ends after this long without work."""

RETENTION = timedelta(days=90)
"""Of finished deliveries in the embedded server; its own default of 24 h makes pages vanish."""

SERVER_START_S = 60.0
"""For the embedded server to answer: 0.3 s measured; a large database after power loss replays its log first."""

SERVER_ANSWER_S = 5.0
"""For a Temporal server to take a connection; after this a person is told instead of kept waiting."""

SERVER_STOP_S = 15.0
"""From SIGTERM to SIGKILL: the embedded server ends in 1 to 2.5 s, and SIGKILL was measured to lose nothing."""

DISK_FREE_BYTES = 1024**3
"""To start a server or a worker: SQLite and git both fail badly on a full disk, and worktrees are added to it."""

LOG_BYTES = 10 * 1024**2
"""The server's and the worker's log are set aside at this size when they start; one older file is kept."""

DATABASE_CHECK_S = 3.0
"""For `PRAGMA quick_check` at a start, some 2 GB; what is larger is believed after this long."""

WORKER_DRAIN_S = 75.0
"""From SIGTERM to SIGKILL of a worker by its supervisor: DRAIN for its turns, and time to hand over the rest."""

WORKER_QUICK_DEATHS = 5
WORKER_QUICK_DEATHS_S = 10.0
WORKER_PAUSE_S = (1.0, 30.0)
"""A worker is started again at once; after five deaths within ten seconds with pauses that double from 1 s to 30 s,
until one has lived for ten seconds: a worker that cannot start must not burn the host."""

IDLE_LOOK_S = 30.0
"""How often a supervisor that ends when idle counts running deliveries."""

SERVER_LOOK_S = 1.0
"""How often a supervisor looks whether the embedded server has died: one attempt at a lock."""

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

NOTE_BYTES = 32 * 1024
"""Of one AGENTS.md: a longer one costs more in every turn than it helps."""

CLOSE_TIMEOUT = timedelta(hours=1)
"""To tidy up after a delivery: seconds, unless its host is away; then the result must not wait for it for ever."""

PREPARE_TIME = timedelta(hours=24)
"""Before a delivery's own time limit is known: fetching, setup and preflight, and waiting for a worker."""

DRAIN = timedelta(seconds=60)
"""At SIGTERM a running turn gets this long to end by itself; then it is handed over from its checkpoint."""

REHEARSAL_STOP_S = 2.0
"""How long a stopping rehearsal waits for clients to take the end of their streams."""

REHEARSAL_CALLS_KEPT = 1000
REHEARSAL_BODIES_KEPT = 100
"""Calls a rehearsal keeps for tests to look at, and how many with their request: a long one has megabytes."""

PAGE_CHARS = 16_000
"""Of a log or diff in one read: at most 64 KiB, whatever the characters."""

WATCH_EVERY_S = 0.5
"""How often a live view looks: a death and the turn after it take about a second, and both are to be seen."""

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

FORGE_PAUSE = timedelta(seconds=2)
FORGE_PAUSE_MAX = timedelta(minutes=5)
"""Until a forge that is away is tried again, doubling: a hiccup costs seconds, an outage of a day 300 attempts."""

FORGE_PATIENCE = timedelta(days=7)
"""How long a forge is waited for: what is to be published is done and paid for. Longer than any outage known."""

FORGE_ATTEMPT = timedelta(minutes=15)
"""One attempt at a forge: a push of a large repository over a slow line, and a dozen small requests."""

QUEUE_PATIENCE = timedelta(seconds=20)
"""For somebody to take work meant for one worker, who takes it in milliseconds unless all slots are full; then the
delivery says whom it waits for."""

TELL_TIMEOUT = (timedelta(minutes=1), timedelta(minutes=10))
"""To comment on an issue, at the start and for good at the end: the delivery's own result waits for it."""

UNEXPECTED_FAILURES = 10
"""Attempts at one piece of work that fail for a reason nobody foresaw: a passing one is over by then."""

CREDENTIAL_ANSWERS = 4
"""How often one git command is told a token: it asks once, and again after each redirect; more is a loop."""

ISSUE_BYTES = 64 * 1024
"""Of an issue's text and comments together, as much as a request may have: some 20,000 tokens in every step."""

ISSUE_COMMENT_BYTES = 16 * 1024
"""Of one comment: a pasted log must not push out what people said."""

ISSUE_TITLE_CHARS = 300
"""Of an issue's title, which goes into history: GitHub allows 256, others more."""

FORGE_SILENCE_S = 30
"""How long a forge may say nothing to one small request; GitHub itself gives up after ten seconds."""

FORGE_RETRY_AFTER_CAP_S = 3600.0
"""A forge's budget of requests is new every hour: what asks for more is a mistake, and costs one request to see."""

FORGE_SECONDARY_PAUSE_S = 60.0
"""After a rate limit that did not say until when: GitHub asks for at least a minute."""

FORGE_TOKEN_MARGIN_S = 300.0
"""An App's token lives for an hour; one this close to its end could end within a push."""

FORGE_COMMENTS = 200
FORGE_COMMENTS_BYTES = 200_000
"""Of one issue's comments, the newest: longer discussions have lost their subject, and would fill a prompt."""

FORGE_TEXT_CHARS = 65_536
"""GitHub refuses a body or comment that is longer."""

DOCTOR_FORGE_S = 20.0
"""For a forge to answer doctor's handful of questions, a second's work: somebody is waiting at a terminal."""

BASELINE_AGE_S = 7 * 86_400.0
"""How long the base commit's results are believed: what setup installs without a lock file moves on within weeks."""

RERUN_TESTS_MOST = 10
"""New failures of one command that are tried once more, each alone: more at once are no accident, and each costs the
runner's start."""

BODY_CHARS = 60_000
"""Of a pull request's text: below FORGE_TEXT_CHARS, so that a person can still add to it."""

TEMPLATE_BYTES = 32 * 1024
"""Of a repository's pull request template; a longer one is no form to fill in, and is left out."""

STATUS_CHARS = 4000
"""Of the comment on an issue: a screen or two."""

ARTIFACT_BYTES = 5_000_000
"""Of one published file: some 50,000 lines. Who reads more has the command to run it again; every clone carries it."""

ARTIFACT_ATTEMPTS = 12
ARTIFACT_PAUSE_S = 0.25
"""How often a push to the artifact branch is tried while other deliveries are faster, and the longest pause between."""

REHEARSAL_GIT_S = 60
"""For one git command of GitHub's twin: on a busy machine a clone of a small repository can take seconds."""

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

REPORT_TEXT_CHARS = 20_000
"""Of any one text on a report's page: a command's last lines have some 8,000."""

REPORT_PICTURES_BYTES = 24_000_000
"""Of all screenshots in one page, before base64: mail takes it, and browsers open it without a pause."""

REPORT_PATIENCE = timedelta(seconds=15)
"""For a host to begin with what a report asks it: a living one does so in milliseconds, unless all its slots are full;
a person waits for it, and the rest of the report does not need it."""

REPORT_ROWS_SHOWN = 60
"""Rows of the timeline: more do not fit a screen; the table below it has all of them."""

JUNIT_CASES = 200_000
"""Of one report: what JUNIT_BYTES of ordinary cases are. Each takes a kilobyte, and the file may hold ten times as many."""

JUNIT_DEPTH = 500
"""Elements within each other in a report: nested suites are some ten deep, and expat keeps a hundred bytes for each."""

JUNIT_TAG_BYTES = 4 * 1024 * 1024
"""Of one tag with its attributes, kept whole until it ends: a failure's message may be one, a million attributes not."""

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
"""Of one file the tamper gate reads: no test that people write is larger, and parsing takes a second for each MiB."""

TAMPER_TOTAL_BYTES = 32 * 1024**2
"""Of all files it reads on one commit: what a worker can hold twice; later ones count as unreadable."""

TAMPER_HITS_MOST = 50
"""Hits and changed tests listed in a report: a person undoes a whole commit long before the fiftieth."""

TAMPER_EVIDENCE_CHARS = 600
"""Of one hit's evidence: some ten lines, enough to see what it was and what it is."""

TAMPER_WORD_FILES = 4
"""Programs of the base that hold words about reports (`PYTEST_ADDOPTS`) before the repository is one about runners, in
which they are no news: in others a settings module and a script or two have one."""

TAMPER_DEPTH = 4
"""Helpers behind helpers that are followed to an assertion, and scripts behind scripts to what runs the tests."""

VERIFY_PAGE = 30
"""Checkpoints, commits and pull requests in one answer to `perdure verify`: of each 150 to 400 bytes, so that even
together they stay near RESULT_BYTES."""

VERIFY_ANSWER = timedelta(minutes=2)
"""For one such answer: to walk a thousand checkpoints of a large repository, or to wait for a forge; then it is said
that nobody answers."""

VERIFY_REPLAY_S = 120.0
"""To replay a delivery's histories: a second for a thousand events, and the start of a Python process before it."""

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

REPORT_CASES = 40
REPORT_CASES_CHARS = 40_000
"""Failing tests of one command in a prompt, and what all their messages take: the cause of more is in the first."""

TEST_SCRIPT_BYTES = 100_000
"""Of a command that selects one test by its name: Linux takes 128 KiB in one argument, and a name can be longer."""

SAID_BYTES = 8 * 1024
"""Of one word, note or answer from a person: it is kept in history and read in every turn that follows."""

SAID_BYTES_A_TURN = 32 * 1024
"""Of all the words that one turn reads: what is more waits for the next one."""

REMIND_AFTER = timedelta(days=1)
REMINDERS = 7
"""A gate that nobody has heard of waits for ever: daily for a week, then whoever cares has been told."""

SAID_BYTES_KEPT = 256 * 1024
"""Of all words no turn has read: eight turns take them, and the state still fits into one payload of a new run."""

HEARD_KEPT = 500
"""Ids of words: the same ones that come again, come within minutes."""

UNREAD_SHOWN, UNREAD_CHARS = 20, 200
"""Of words that no turn has read, in a result: a failed delivery's is part of a failure, which the server cuts."""

DECIDED_KEPT = 200
"""Decisions a delivery remembers, so that one that arrives again is answered and not counted."""

NOTES_KEPT = 20
"""Notes of what was sent and did not count: somebody who sends nonsense all day must not fill the state."""

SANDBOX_PROCESSES = 8192
"""At once, with their threads, in one sandbox (in all of its user's before Linux 5.14): a fork bomb ends there, test
runners stay below a thousand. The kernel does not hold a root worker's commands to it: there the timeout is the end."""

QUESTION_CHARS, QUESTION_WHY_CHARS = 1_000, 500
QUESTION_CHOICES, CHOICE_CHARS = 10, 100
"""Of an agent's question, why it matters, and its choices: what a person reads at once in the Web UI or a message."""

ASSUMPTION_CHARS = 500
ASSUMPTION_PART_CHARS = (160, 200, 120)
"""Of what one turn assumed, all of it together; and of one question, what was assumed, and why: each one sentence."""

ASSUMPTIONS_KEPT = 40
"""In a delivery's state and its pull request: 20 KB. An agent that assumes more has not understood the request."""

KEPT_BYTES = 64 * 1024
"""Of a text handed in for a delivery, such as an edited plan: as much as a request or a plan sent along with one."""

DECISION_ACCEPTED = timedelta(seconds=5)
"""A worker takes an update within milliseconds; after this long there is none, and a signal waits for the next one."""

CANCEL_TURN_S = 120.0
"""For the turn that runs to end before a cancellation: most take less than a minute. Later its tools are ended."""

NEW_QUESTION_S = 30.0
"""For what follows a decision to be put: the edited plan for approval, within milliseconds where a worker lives."""

STAT_FILES = 20
STAT_PAGES = 16
"""Files named where a change is shown to be approved, and pages (64 KiB) of it that are read for that."""

NOTIFY_FOR = timedelta(days=1)
"""An address that does not answer is tried this long: over a night, or a receiver's day of maintenance."""

NOTIFY_PAUSE, NOTIFY_PAUSE_MAX = timedelta(seconds=2), timedelta(minutes=15)
"""Between tries, doubled each time: a hundred tries in a day, and a receiver that is back is told soon."""

NOTIFY_ATTEMPT_S = 15.0
"""For one try, connecting included: receivers should answer at once and work later; Slack does within a second."""

NOTIFY_RETRY_AFTER_S = 3600.0
"""The longest pause that a receiver may ask for: one that asks for more would otherwise be told once a day."""

NOTIFY_ADDRESSES = 10
"""Addresses a host tells: each is tried by itself, and each has its lines in the notification's history."""

NOTIFY_SECRET_BYTES = 16
"""The least for a secret: what is shorter can be guessed from one signed message. Generated ones have 24 or more."""

NOTICE_STARTED = timedelta(seconds=10)
"""At its end a delivery waits until the server has taken over the last notice: milliseconds, or the server is down."""

NOTICE_RESULT_BYTES = 32 * 1024
"""Of a result in a notice; with more its steps are left out: the whole has to stay below 64 KiB of history."""

ATTACHES = 200
"""Times one run takes update `attach` under different ids: a run takes 2,000 updates, and decisions need room."""

BLOCK_USD = 1.0
"""What a delivery reserves of a fleet's budget at a time: about twenty turns, so that it seldom asks (holes.md H28)."""

BLOCKS_A_DAY = 300
"""Into which all budgets of a day are cut at most: a block costs about 9 events, a day may have 5,000."""

BLOCK_LEAST_USD = 0.10
"""The least that is worth asking for; what is left of a day below it is not handed out."""

BLOCK_AHEAD = 0.25
"""Of a block, left when the next one is asked for: a turn takes seconds, an answer milliseconds."""

LEASE = timedelta(hours=1)
"""A delivery holds what it has reserved this long without being heard of. Longer than nearly every turn."""

TREASURY_TICK = timedelta(minutes=30)
"""How often the Treasury looks for reservations that are overdue, while there are any: 5 events each time."""

LEASE_RECORDS, LEASE_RECORDS_FOR = 2_000, timedelta(days=2)
"""Of deliveries that hold nothing any more: half a megabyte, a quarter of what a new run can be given."""

SPENT_TIME = timedelta(minutes=2)
"""To read a spend log takes milliseconds where the host lives; where it does not, nothing else waits for it."""

TREASURY_HEARD = 100
"""Ids of additions: the same one that comes again, comes within seconds."""

GRANT_SOON = timedelta(seconds=10)
"""The answer takes a fraction of a second; only what takes longer is shown as waiting."""

GRANT_AGAIN, GRANT_AGAIN_MOST = timedelta(minutes=1), timedelta(hours=1)
"""When a delivery asks again that has not heard anything, first and at last: there may be no Treasury."""

UNTOLD_WITHIN, UNTOLD_SHOWN = timedelta(days=7), 3
"""Notices that reached nobody, in `perdure doctor`: the newest of a week show what is wrong with an address."""

UNTOLD_ANSWER = timedelta(seconds=5)
"""For each answer of a server that was just seen to answer."""

DETAILS_BYTES = 20_000
"""Of a delivery's current details: what Temporal documents as their limit. The Web UI carries them in an address."""

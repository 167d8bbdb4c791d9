"""Every limit, timeout and retry that more than one module uses, each with its reason.

A limit that a single module uses stands in that module, or here beside others that share its reason. What users may set
themselves is in perdure.models.config.repository.
"""

from __future__ import annotations

from datetime import timedelta

# The model and the agent's tools.

TOOL_OUTPUT_HEAD = 10_000
TOOL_OUTPUT_TAIL = 20_000
"""Characters of a tool's output that the model sees: the beginning says what ran, the end how it ended."""

READ_FILE_BYTES = 10_000_000
READ_LINES = 2000
READ_LINE_CHARS = 2000
"""Bounds of one call of the read tool: the largest file in bytes, lines, and characters of one line."""

# What a delivery may use when nobody says otherwise.


class Defaults:
    """Settings that apply when nobody says otherwise."""

    test_fixes: int = 4  # a fifth attempt was not seen to succeed where four failed (reference: seeds, system A)
    review_fixes: int = 3  # a reviewer that still finds blockers after three rounds needs a person
    turns_per_step: int = 60  # three times what a well-sized task needs; ends runaway loops
    time: str = "2h"  # wall time of a whole delivery
    budget_usd: float = 5.00  # several times a typical delivery; a surprise stays small
    host_budget_usd: float = 100.0  # the most one request may ask for on a host nobody configured
    host_time: str = "24h"  # likewise for time
    max_tokens: int = 16_000  # of one reply; a longer edit is better done in two
    environment_gb: float = 10.0  # what setups made and keep for the next one: some thirty environments of a usual size
    slots: int = 32  # activities at once on one host: turns mostly wait for the model


DEFAULTS = Defaults()

# How deliveries are carried out: queues, heartbeats, retries, leases, what history holds.

TASK_QUEUE = "perdure"
"""The queue of workflows and of activities that may run on any host."""

WORKFLOW_TASK = timedelta(seconds=5)
"""Timeout of one workflow task, half of the server's default: a worker that dies during one leaves nothing by which its
death could be reported. Deciding takes milliseconds, and replaying the longest history a second."""

HEARTBEAT_TIMEOUT = timedelta(seconds=30)
"""A busy two-core host was seen to be 9 s late; deaths are reported by the living long before this."""

WORKER_REPORT_INTERVAL = timedelta(seconds=10)
"""Between a worker's reports of its free slots, which the page shows: a small call; the SDK's default is a minute."""

RPC_TIMEOUT = timedelta(seconds=5)
"""The time for one small request to the server; whoever sent it tries again."""

RETRY_PAUSE = timedelta(seconds=1)
"""Between attempts that failed for a passing reason; an attempt that died is redone after 1 ms by its reporter."""

GIT_TIMEOUT_S = 300.0
"""One git command; fetching and pushing over a slow line is the longest."""

GIT_LOOK_S = 60.0
"""Timeout of a git command that only asks a remote for its refs: it is answered in seconds or not at all."""

WORKSPACE_RETENTION = timedelta(days=7)
"""The time the workspace of a failed delivery is kept for a person to look at."""

CLOSE_TIMEOUT = timedelta(hours=1)
"""To tidy up after a delivery: it takes seconds, unless its host is away; the result must not wait for that host."""

DRAIN = timedelta(seconds=60)
"""The time a running turn may go on after SIGTERM; then it is handed over from its checkpoint."""

# What is kept for later deliveries (perdure.adapters.system.keyed_store).

KEPT_UNUSED = timedelta(days=7)
"""The time after which what nobody has used is removed: as long as a failed delivery's workspace is kept."""

KEPT_AGE = timedelta(days=7)
"""The age at which what setup made, and a base's test results, are made again: what no lock file pins changes within
weeks."""

KEPT_CHECKOUTS = 8
"""The most checkouts kept of one repository: two deliveries on two processors have as many in use while their changes
are tested."""

KEPT_SEEDS_BYTES = 4 * 1024**3
"""Of what compilers have made of all bases together: four of the largest that are kept."""

KEPT_ENVIRONMENTS = 4
"""The most environments kept of one base branch, and of all branches of strangers, of which each serves its own commit
alone: two lock files in turn, and the commit that is tested again."""

HOME_DISK_SHARE = 0.2
"""The share of a disk that a home may take where nobody has set a limit: beyond it what ended goes before its time."""

KEPT_DISK_SHARE = 0.05
"""The share of a disk that environments, and what compilers made, take each where nobody has set a limit: with what
else a home holds, a tenth of a laptop's disk."""

# Forges, webhooks, and what is written there.

MODEL_PAUSE = timedelta(seconds=1)
MODEL_PAUSE_MAX = timedelta(minutes=1)
"""First and longest pause after a model error that did not say when to come back; doubles, with jitter."""

FORGE_PAUSE = timedelta(seconds=2)
FORGE_PAUSE_MAX = timedelta(minutes=5)
"""Pauses before an unreachable forge is tried again, doubling from the first to the second: a hiccup costs seconds, an
outage of a day 300 attempts."""

FORGE_SILENCE_S = 30
"""A forge's longest silence to one small request; GitHub itself gives up after ten seconds."""

END_MESSAGE_CHARS = 1_000
"""Of the message with which a delivery tells its backlog that it has ended: a reason, and a command with two paths."""

FORGE_TEXT_CHARS = 65_536
"""GitHub refuses a body or comment that is longer."""

NOTIFY_PAUSE, NOTIFY_PAUSE_MAX = timedelta(seconds=2), timedelta(minutes=15)
"""Between attempts to send a notice, doubled each time: a hundred in a day, and a receiver that is back hears soon."""

# The most that is parsed of texts that strangers write: each is checked before a parser sees it.

CONFIG_BYTES = 64 * 1024
"""Of a perdure.toml or a user file, as much as a request can carry: the longest known has 4 KiB."""

PROJECT_FILE_BYTES = 1024 * 1024
"""Of a pyproject.toml, Cargo.toml or package.json that is looked into; a larger one was made to be large."""

NESTING = 40
"""Depth of tables and lists within each other: every reader of them is recursive. A setting has four levels."""

SETTING_CHARS = 8 * 1024
"""Of one string in a settings file: a command line, the longest of them, has a few hundred."""

# The embedded server and supervised workers.

SERVER_START_S = 60.0
"""For the embedded server to answer: 0.3 s measured; a large database after power loss replays its log first."""

SERVER_ANSWER_S = 5.0
"""For a Temporal server to accept a connection; after this a person gets an error instead of waiting."""

SERVER_STOP_S = 15.0
"""From SIGTERM to SIGKILL: the embedded server ends in 1 to 2.5 s, and SIGKILL was measured to lose nothing."""

DISK_FREE_BYTES = 1024**3
"""Free space required to start a server or a worker: SQLite and git both fail badly on a full disk."""

KEPT_CHECKOUTS_FREE_BYTES = 4 * DISK_FREE_BYTES
"""The free space below which no checkout is kept, long before a worker would refuse to start."""

WORKER_DRAIN_S = 75.0
"""From SIGTERM to SIGKILL of a worker by its supervisor: DRAIN for its turns, and time to hand over the rest."""

WORKER_QUICK_DEATHS = 5
WORKER_QUICK_DEATHS_S = 10.0
WORKER_PAUSE_S = (1.0, 30.0)
"""A worker is started again at once; after five deaths within ten seconds with pauses that double from 1 s to 30 s,
until one has lived for ten seconds: a worker that cannot start must not burn the host. One that is killed
(SIGKILL) is not to blame: there is no pause when it had WORKER_STARTS_S to begin its work, and 1 s at most before."""

IDLE_LOOK_S = 30.0
"""Seconds between two counts of running deliveries by a supervisor that ends when idle."""

SERVER_LOOK_S = 1.0
"""Seconds between a supervisor's looks for the embedded server's death: one attempt at a lock."""

# Messages, decisions and requests from people.

MESSAGE_BYTES = 8 * 1024
"""Of one message, note or answer from a person: it is kept in history and read in every turn that follows."""

REQUEST_BYTES = 64 * 1024
"""A request is kept in history as it was sent; nothing larger than this goes there."""

LABEL_CHARS, LABELS_MOST = 100, 100
"""Forges accept 50 to 255 characters a label and about 100 labels; a label that a forge refuses is noted there."""

WORKFLOW_ID_CHARS = 255
"""Of a workflow id: a column of so many characters where Temporal is on a SQL database, which refuses a longer one with
its own words, or only once a child is started. SQLite, the embedded server's, takes any."""

CHILDREN_CHARS = 78
"""That the longest id of what a delivery starts has beyond its own: `/tasks-3f9c0a/` and a task's 40 characters, and
`.notice-` and 16 digits."""

KEYWORD_BYTES = 255
"""Of a search attribute of type Keyword: a column of so many characters where visibility is in a SQL database."""

KEYWORD_LIST_BYTES = 2048
"""Of a search attribute of type KeywordList, as JSON in ASCII: a server refuses a workflow task that sets more
(`limit.searchAttributesSizeOfValue`; measured on the embedded one)."""

LABELS_BYTES = 1800
"""Of a request's labels together, counted alike: what is left of the attribute is for the labels of its issue."""

NAME_CHARS, PLACE_CHARS = 255, 2048
"""Of a name (a branch, a model), as many as a file system accepts for one; and of an address or a path."""

PERSON_CHARS = 200
"""Of a person's name, as a decision records it."""

PRIORITY_MOST = 100
"""Of an item of a backlog, and below zero the least: people name a few steps of it."""

USD_LEAST, USD_MOST, TOKENS_MOST = 0.01, 100_000, 10**12
"""Of a delivery's budget, and of what is added to it in one step: more is a slip of the finger."""

INTEGER_MOST = 2**53 - 1
"""Of any whole number that is sent or read: programs whose numbers are doubles would round a larger one."""

ADDED_MOST_USD = 1_000_000
"""The most that is added to a day's budget in one step: as much as such a budget may be."""

MESSAGE_BYTES_PER_TURN = 32 * 1024
"""Of all messages that one turn reads: further ones wait for the next turn."""

PLAN_SHOWN_BYTES = 3_000
"""Of a plan's text, kept in the delivery's state so that it stands in the Web UI: a screen. The whole plan is an
artifact."""

NOTES_KEPT = 20
"""Notes about messages that did not count: somebody who sends nonsense all day must not fill the state."""

HANDED_IN_BYTES = 64 * 1024
"""Of a text that a person hands in for a delivery, such as an edited plan: as much as a request may have."""

DECISION_ACCEPTED = timedelta(seconds=5)
"""A worker accepts an update within milliseconds; after this long there is none, and a signal is sent instead, which
waits for the next worker."""

LAST_TABLE_TIME, LAST_TABLE_TRY = timedelta(minutes=10), timedelta(seconds=30)
"""To read the table of a Treasury run that was ended: a worker replays it, in a second or two. Deliveries wait that
long."""

LAST_TABLE_RUNS = 5
"""Treasury runs, ended before they had read their table themselves, behind which it is looked for: somebody is clearing
up."""

# What a command in the sandbox may use.

OUTPUT_FILE_BYTES = 50_000_000
"""Size at which a command's output file is cut off and the command ended: a flood fills neither memory nor disk."""

SANDBOX_FILE_BYTES = 8 * 1024**3
"""RLIMIT_FSIZE of a sandboxed process: any single file. Low limits break linkers and test databases (SIGXFSZ)."""

DISK_FREE_BYTES = 32 * 1024**2
"""Free bytes that the disk needs before the model is asked: a reply that cannot be written down would be paid for again
and again. Commands that fail with less are run again."""

SANDBOX_NICE = 10
"""Fifty test suites on two cores must not starve the worker into missed deadlines."""

SANDBOX_END_S = 10.0
"""For killed processes to be gone; only one stuck in the kernel takes longer than milliseconds."""

SANDBOX_PROBE_S = 20.0
"""One `true` in all namespaces takes 10 ms; a host this slow would time out every test as well."""

SANDBOX_PROCESSES = 8192
"""At once, with their threads, in one sandbox (in all of its user's before Linux 5.14): a fork bomb ends there, test
runners stay below a thousand. The kernel does not hold a root worker's commands to it: the worker does, who looks."""

SANDBOX_MEMORY_BYTES = 8 * 1024**3
"""Of all processes of one command together, with its private /tmp and home. Large test suites and compilers stay below
half of it; more is the host's owner's to give (`[commands] memory`)."""

SANDBOX_MEMORY_SHARE = 0.75
"""Of the host's memory, where that is less than the above: the rest keeps the worker and its server alive."""

SANDBOX_DISK = "16g"
"""The most that commands may write into one worktree: a large Rust workspace's target directory takes 10."""

SANDBOX_DISK_LOOK_S = 60.0
"""Seconds after which a worktree is measured again although the disk's free space shows no need: others may have freed
some."""

SANDBOX_DISK_SLACK_BYTES = 64 * 1024**2
"""The bytes a command may still write where an earlier one went over the limit: cleaning up needs a little."""

SANDBOX_OOM_SCORE = 800
"""OOM score of the commands of a model or a test: a kernel out of memory kills them, not the worker or server."""

# What is shown: reading, watching, reports, verification, demo and rehearsals.

WATCH_EVERY_S = 0.5
"""Seconds between refreshes of a live view: a death and the turn after it take about one, and both are to be seen."""

WATCH_SILENCE_S = 10.0
"""Without an answer for this long no worker is running: one that starts on a busy host needs several seconds."""

DEMO_KILLS = 2
DEMO_KILLS_MOST = 4
"""Kills by the demo itself, once while a reply arrives and once while a tool runs; and the most a user may ask for."""

RUNS_READ = 50
"""Runs of one delivery that a report looks at: retries and continuations; a month of daily retries."""

BACKLOG_RUNS_READ = 200
"""Runs of one backlog that a report looks at: a thousand items at 40 events each are 40 runs, and it may be resumed."""

VERIFY_PAGE = 30
"""Checkpoints, commits and pull requests in one answer to `perdure verify`: of each 150 to 400 bytes, so that even
together they stay near RESULT_BYTES."""

STAT_FILES = 20
STAT_PAGES = 16
"""Files named where a change is shown for approval, and pages (64 KiB) of the diff that are read for that."""

TEST_NAME_CHARS = 60
"""Of a test command that nobody gave a name: the command itself stands in front of its result, on one line."""

# Tests, how they are judged, findings, reviews and screenshots.

CASE_MESSAGE_CHARS = 2_000
"""Of one test case's failure message; pytest's longest useful traceback, not its captured output."""

CASE_NAME_CHARS = 4_000
"""Of one test's name, which every table of tests holds several times; a longer one is made of the test's data, and is
kept as its beginning and a hash."""

JUNIT_BYTES = 256 * 1024 * 1024
"""A report file larger than this is not read. Honest ones hold what tests have printed; reading takes some seconds, and
as much memory as its cases."""

FAILURE_TAIL_LINES = 20
FAILURE_TAIL_CHARS = 1_500
"""Of a failed command's output in an error: fits into FAILURE_CHARS together with what, where and fix."""

RERUN_TESTS_MOST = 10
"""New failures of one command that are run once more, each alone: more of them are no accident, and each costs the
start of a runner."""

JUNIT_CASES = 200_000
"""Of one report: as many ordinary cases as JUNIT_BYTES hold. Each takes a kilobyte, and a file can hold ten times
more."""

TAMPER_FILE_BYTES = 1024**2
"""Of one file that is searched for tests: no test that people write is larger."""

TAMPER_TOTAL_BYTES = 32 * 1024**2
"""Of all files that differ between two commits and are read: a worker can hold twice as much; later files count as
unreadable."""

TAMPER_TESTS_MOST, TAMPER_LINE_CHARS = 3_000, 500
"""Tests of one file that are read by name, and of a line that is looked at: no person writes more."""

TAMPER_HITS_MOST = 50
"""Hits and changed tests listed in a report: a person undoes a whole commit long before the fiftieth."""

PATCH_FILE_BYTES = 16 * 1024**2
"""Of one file whose change is looked into; larger ones are nothing a person wrote, and count as binary."""

FINDING_BINARY_BYTES = 1024**2
"""A binary file above this stays in every clone for ever: it blocks. Libraries of icons and fonts are below."""

REVIEW_ISSUES_REPORTED = 20
"""Issues with a wrong place that are reported back to the reviewer in one message, each in a line."""

SIDE_PATTERNS, SIDE_PATTERN_CHARS = 100, 300
"""Patterns of test files that are read from a repository's settings, and characters of each: every path is compared
with all of them, and what people write is a tenth of it."""

SIDE_READ_FILES = 200
"""Files that are read to find which tests they name: settings, `conftest.py`, scripts that a command runs."""

ATTEMPTS_MOST = 5
"""At one plan: they share a budget and a host's processors, and a fifth adds little to the first four."""

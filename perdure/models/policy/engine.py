"""How deliveries are carried out: queues, heartbeats, retries, leases, what history holds."""

from __future__ import annotations

from datetime import timedelta

TASK_QUEUE = "perdure"
"""Workflows and whatever may run on any host."""

WORKFLOW_TASK = timedelta(seconds=5)
"""For one decision of the workflow, half of what a server gives by itself: a worker that dies over one has left nothing
by which it could be reported. Deciding takes milliseconds, and replaying the longest history a second."""

HEARTBEAT_EVERY = timedelta(seconds=1)
"""From a task of its own: cancel, reset and pause reach an activity only with its heartbeat."""

HEARTBEAT_TIMEOUT = timedelta(seconds=30)
"""A busy two-core host was seen to be 9 s late; deaths are reported by the living long before this."""

HEARTBEAT_THROTTLE = timedelta(seconds=1)
"""The SDK passes a heartbeat on only after 0.8 × timeout (24 s) unless told otherwise (holes.md H3)."""

RETRY_PAUSE = timedelta(seconds=1)
"""Between attempts that failed for a passing reason; a death is redone after 1 ms by its reporter."""

DISK_FULL_PAUSE = timedelta(seconds=10)
"""Until a full disk is looked at again: somebody has to make room first."""

DISK_FREE_TURN_BYTES = 32 * 1024**2
"""To ask the model: a reply that cannot be written down would be paid for again and again."""

DEATHS_PER_TURN = 3
"""The same turn seeing its worker die this often is the turn's fault, not the host's (holes.md H6)."""

LEASE_PROOF_S = 5.0
"""How long a new attempt waits for proof that the previous writer is gone before it takes a new directory."""

RESULT_BYTES = 16 * 1024
"""An activity's result, checked before its effect is reported: 2 MiB would fail after the effect (holes.md H36)."""

FAILURE_CHARS = 2000
"""Of an exception's message in history; the whole text stays on the host."""

GIT_TIMEOUT_S = 300.0
"""One git command; fetching and pushing over a slow line is the longest."""

GIT_SILENCE_S = 60
"""Without a byte from a remote: servers that prepare a large answer say every 5 s that they live."""

GIT_WATCH_S = 0.5
"""Between two looks at what a remote makes git take: at 500 MB/s, 0.25 GB too late."""

GIT_FETCH_BYTES = 16 * 1024**3
"""Of one fetch: more does not come in GIT_TIMEOUT_S on any line that it is fetched over."""

GIT_MEMORY_BYTES = 4 * 1024**3
"""Of git and its helpers together: putting together the Linux kernel's pack takes 1.5."""

GIT_SAID_BYTES = 64 * 1024**2
"""Of what a remote has git print, and we hold: the names of half a million branches."""

GIT_LOOK_S = 60.0
"""A question to a remote that brings nothing along: it is answered in seconds or not at all."""

WORKSPACE_KEPT = timedelta(days=7)
"""After a failure, for a person to look at."""

PRUNE_AFTER = timedelta(weeks=2)
"""Since an object of the vault that nothing refers to was last touched: somebody may be about to refer to it (H15)."""

LOOSE_MOST, PACKS_MOST = 5000, 50
"""Of objects outside packs, and of packs, before a vault is packed at the end of a delivery: some hundred turns. Packed
they take a tenth of the disk and are read five times as fast (benchmarks/README.md)."""

LOOSE_OBJECT_BYTES = 8 * 1024**2
"""Of an object outside packs that is read without git: what is larger, git checks piece by piece."""

LOOSE_WALK = 200
"""Commits that are followed from a delivery's head to its base without git; a delivery makes one a step."""

CLOSE_TIMEOUT = timedelta(hours=1)
"""To tidy up after a delivery: seconds, unless its host is away; then the result must not wait for it for ever."""

PREPARE_TIME = timedelta(hours=24)
"""Before a delivery's own time limit is known: fetching, setup and preflight, and waiting for a worker."""

DRAIN = timedelta(seconds=60)
"""At SIGTERM a running turn gets this long to end by itself; then it is handed over from its checkpoint."""

UNEXPECTED_FAILURES = 10
"""Attempts at one piece of work that fail for a reason nobody foresaw: a passing one is over by then."""

"""The embedded server and supervised workers."""

from __future__ import annotations

from datetime import timedelta

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
until one has lived for ten seconds: a worker that cannot start must not burn the host. One that is killed
(SIGKILL) is not to blame: there is no pause when it had WORKER_STARTS_S to begin its work, and 1 s at most before."""

WORKER_STARTS_S = 1.5
"""A worker that was forked works after one second, on a quiet machine."""

FORKS_LOAD_MORE_S = 5.0
"""After a worker was forked: then its fork server loads the model's library as well, which takes a processor for one to
three seconds that the first worker needs itself until then."""

FORKS_ANSWER_S = 60.0
"""For a fork server to say how a worker ended: a millisecond, or the seconds of what it is just loading, ten and more
on a machine that is busy. One that is silent for longer was stopped, or hangs: another one takes its place."""

IDLE_LOOK_S = 30.0
"""How often a supervisor that ends when idle counts running deliveries."""

SERVER_LOOK_S = 1.0
"""How often a supervisor looks whether the embedded server has died: one attempt at a lock."""

"""What a command in the sandbox may use."""

from __future__ import annotations

from datetime import timedelta

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

SANDBOX_PROCESSES = 8192
"""At once, with their threads, in one sandbox (in all of its user's before Linux 5.14): a fork bomb ends there, test
runners stay below a thousand. The kernel does not hold a root worker's commands to it: the worker does, who looks."""

GIT_VIEW_PACKS = 50
"""Packs of a base branch's history before they become one: git asks each of them for every object it looks up."""

ENVIRONMENT_KEPT = timedelta(days=7)
"""After this long setup runs again although the repository is the same: what no lock file pins is renewed."""

ENVIRONMENT_MADE_S = 3600.0
"""A half-made environment this old was left by a death: to link and sync 300 MB takes seconds."""

ENVIRONMENT_POLL_S = 0.2
"""Between two looks whether another delivery's setup of the same files has ended; it wins minutes."""

SANDBOX_MEMORY_BYTES = 8 * 1024**3
"""Of all processes of one command together, with its private /tmp and home. Large test suites and compilers stay below
half of it; more is the host's owner's to give (`[commands] memory`)."""

SANDBOX_MEMORY_SHARE = 0.75
"""Of the host's memory, where that is less: what a command leaves keeps the worker and its server alive."""

SANDBOX_DISK = "16g"
"""The most that commands may write into one worktree: a large Rust workspace's target directory takes 10."""

SANDBOX_DISK_LOOK_S = 60.0
"""After that a worktree is measured again although the disk's free space shows no need: others may have freed some."""

SANDBOX_DISK_SLACK_BYTES = 64 * 1024**2
"""The room that a command is left where an earlier one went over: it can clean up, which needs a little."""

SANDBOX_LOOK_S = 0.1
"""Between two looks at a running sandbox: at 2 GB/s, the most that one process was seen to fill, 0.2 GB too late."""

SANDBOX_GROUP_ROUNDS = 10
"""Rounds in which the processes of a delegated control group are moved out of it: some start others meanwhile."""

SANDBOX_OOM_SCORE = 800
"""Where the host runs out of memory first, its kernel ends a command of a model or a test, not the worker or server."""

SETUP_CONNECT_S = 30.0
"""For a host outside to take a connection, and for a program in setup to say where it wants to go."""

SETUP_CONNECTIONS = 128
"""At once, through the proxy of one setup: each takes two of the worker's descriptors. By its defaults uv opens up to
50, npm 15."""

SETUP_HEAD_BYTES = 64 * 1024
"""Of a request to setup's proxy, and of what it carries at once."""

"""The SDK's runtimes, one of each kind in a process: threads that carry calls to Temporal, and their log."""

from __future__ import annotations

from functools import cache

from temporalio.runtime import Runtime, TelemetryConfig

from perdure.models.limits import WORKER_REPORT_INTERVAL


@cache
def worker_runtime() -> Runtime:
    """Return the runtime of workers: the SDK's own, with shorter pauses between their reports (WORKER_SAYS)."""
    return Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=WORKER_REPORT_INTERVAL)


@cache
def quiet_runtime() -> Runtime:
    """Return the runtime of everything but workers, without the SDK's log, which would be on a person's screen.

    What fails for good is raised as an error anyway.
    """
    return Runtime(telemetry=TelemetryConfig(logging=None))

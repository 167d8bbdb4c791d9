"""The SDK's runtimes, one of each kind in a process: threads that carry calls to Temporal, and their log."""

from __future__ import annotations

from functools import cache

from temporalio.runtime import Runtime, TelemetryConfig

from perdure.models.limits import WORKER_SAYS


@cache
def working() -> Runtime:
    """For workers: as the SDK has it, with shorter pauses between their reports."""
    return Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=WORKER_SAYS)


@cache
def quiet() -> Runtime:
    """For everything else. The SDK's log would be on a person's screen: what fails for good is raised, and told."""
    return Runtime(telemetry=TelemetryConfig(logging=None))

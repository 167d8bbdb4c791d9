"""The base of the activity classes, which gives each the host that it runs on."""

from __future__ import annotations

from perdure.adapters.worker.host import Host


class OnHost:
    """A base class that keeps the host: its home, configuration, forges, leases and journals."""

    def __init__(self, host: Host) -> None:
        self._host = host

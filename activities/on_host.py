"""The frame that activities share: the host they run on."""

from __future__ import annotations

from perdure.adapters.worker.host import Host


class OnHost:
    def __init__(self, host: Host) -> None:
        self._host = host

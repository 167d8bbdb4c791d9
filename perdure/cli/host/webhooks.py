"""`perdure doctor` about webhooks: who is told, who was not, and whether they can be."""

from __future__ import annotations

import os

from perdure import secrets
from perdure.cli.host.checkups import MISSING, NOTE, OK, Checkup
from perdure.cli.session import carry_out
from perdure.models.errors import PerdureError
from perdure.text import visible

_FIX = "correct [notify] url or PERDURE_WEBHOOK_URL of the worker, or what answers there"


def check_notify() -> list[Checkup]:
    """Say who is told when a delivery waits or ends, and who was not."""
    from perdure.adapters.notify.addresses import Listeners
    from perdure.adapters.repository.host import load_host_config
    from perdure.adapters.system.home import Home
    from perdure.local.access import tells_the_same
    from perdure.local.places import read_supervisor

    listeners, found = Listeners.of(load_host_config(os.environ).notify, secrets.environment()), []
    if listeners.addresses:
        told = f"{', '.join(address.name for address in listeners.addresses)} ({', '.join(listeners.events)})"
        words = ["perdure doctor --notify sends each a test"]
        if not listeners.keys:
            words.append("not signed: set PERDURE_WEBHOOK_SECRET if a receiver checks that; chats do not")
        if readable := [address.name for address in listeners.addresses if address.readable]:
            words.append(
                f"not encrypted on its way to {', '.join(readable)}: write https, unless that network is yours"
            )
        found = [Checkup("notify", OK, told, "\n".join(words))]
    running = read_supervisor(home) if (home := Home.find()).root.is_dir() else None
    if running and not tells_the_same(running.notify_access, secrets.environment(), running.started_at.isoformat()):
        other = "the worker that runs was started with other addresses or another secret than yours"
        found.append(Checkup("notify", NOTE, other, "perdure down, then perdure up --detach: it takes yours"))
    return [
        *found,
        *(Checkup("notify", NOTE, f"not told of {visible(words)}", _FIX) for words in carry_out(_untold())),
    ]


async def _untold() -> list[str]:
    """Empty where no server runs: what is wrong with it, the look at it says."""
    from temporalio.service import RPCError

    from perdure.adapters.system.home import Home
    from perdure.client.notifications import not_notified
    from perdure.local.connect import connect

    home = Home.find()
    try:
        return await not_notified(await connect(home, start=False, say=lambda _: None)) if home.root.is_dir() else []
    except (PerdureError, RPCError):
        return []


def try_notify() -> list[Checkup]:
    """One line an address. The worker tells, with its own addresses and secret: that is what deliveries do."""
    from temporalio.service import RPCError

    from perdure.adapters.system.home import Home
    from perdure.client.notifications import NoticeTried, try_notice
    from perdure.local.connect import connect

    async def work() -> list[NoticeTried]:
        client = await connect(Home.find(), start=False, say=lambda _: None)
        try:
            return await try_notice(client)
        except RPCError as error:
            raise PerdureError(f"Temporal does not do that: {visible(error.message)}", fix="perdure doctor") from None

    if not (found := carry_out(work())):
        return [Checkup("notify", MISSING, "no worker took it", "perdure up --detach starts one, then the same again")]
    return [
        Checkup("notify", OK if tried.told else MISSING, visible(tried.said), "" if tried.told else _FIX)
        for tried in found
    ]

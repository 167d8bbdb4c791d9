"""The checks of `perdure doctor` on webhooks: who is notified, what could not be sent, and a test of sending."""

from __future__ import annotations

import os

from perdure import secrets
from perdure.cli.host.checkups import MISSING, NOTE, OK, Checkup
from perdure.cli.session import run_coroutine
from perdure.models.errors import PerdureError
from perdure.text import visible

_FIX = "correct [notify] url or PERDURE_WEBHOOK_URL of the worker, or what answers there"


def check_notify() -> list[Checkup]:
    """Report who is notified when a delivery waits or ends, and which notices could not be sent.

    A running worker that has other addresses or another secret than this environment is noted.
    """
    from perdure.adapters.notify.addresses import Listeners
    from perdure.adapters.repository.host import load_host_config
    from perdure.adapters.system.home import Home
    from perdure.local.access import notifies_same_people
    from perdure.local.places import read_running_supervisor

    listeners, checkups = Listeners.from_settings(load_host_config(os.environ).notify, secrets.environment()), []
    if listeners.addresses:
        summary = f"{', '.join(address.name for address in listeners.addresses)} ({', '.join(listeners.events)})"
        notes = ["perdure doctor --notify sends each a test"]
        if not listeners.keys:
            notes.append("not signed: set PERDURE_WEBHOOK_SECRET if a receiver checks that; chats do not")
        if readable := [address.name for address in listeners.addresses if address.is_plaintext]:
            notes.append(
                f"not encrypted on its way to {', '.join(readable)}: write https, unless that network is yours"
            )
        checkups = [Checkup("notify", OK, summary, "\n".join(notes))]
    supervisor = read_running_supervisor(home) if (home := Home.find()).root.is_dir() else None
    if supervisor and not notifies_same_people(
        supervisor.notify_access, secrets.environment(), supervisor.started_at.isoformat()
    ):
        difference = "the worker that runs was started with other addresses or another secret than yours"
        checkups.append(Checkup("notify", NOTE, difference, "perdure down, then perdure up --detach: it takes yours"))
    return [
        *checkups,
        *(
            Checkup("notify", NOTE, f"not told of {visible(notes)}", _FIX)
            for notes in run_coroutine(_list_unsent_notices())
        ),
    ]


async def _list_unsent_notices() -> list[str]:
    """Return a line for each notice that could not be sent; empty where no server answers, which check_temporal
    reports."""
    from temporalio.service import RPCError

    from perdure.adapters.system.home import Home
    from perdure.client.notifications import failed_notices
    from perdure.local.connect import connect_to_temporal

    home = Home.find()
    try:
        return (
            await failed_notices(await connect_to_temporal(home, start=False, say=lambda _: None))
            if home.root.is_dir()
            else []
        )
    except (PerdureError, RPCError):
        return []


def try_notify() -> list[Checkup]:
    """Have the worker send a test notice to every address, and report what each answered.

    The worker's own addresses and secret count, as they do for deliveries. Raises PerdureError where the server
    refuses.
    """
    from temporalio.service import RPCError

    from perdure.adapters.system.home import Home
    from perdure.client.notifications import NoticeAttempt, send_trial_notice
    from perdure.local.connect import connect_to_temporal

    async def send_test_notices() -> list[NoticeAttempt]:
        client = await connect_to_temporal(Home.find(), start=False, say=lambda _: None)
        try:
            return await send_trial_notice(client)
        except RPCError as error:
            raise PerdureError(f"Temporal does not do that: {visible(error.message)}", fix="perdure doctor") from None

    if not (results := run_coroutine(send_test_notices())):
        return [Checkup("notify", MISSING, "no worker took it", "perdure up --detach starts one, then the same again")]
    return [
        Checkup(
            "notify", OK if result.delivered else MISSING, visible(result.summary), "" if result.delivered else _FIX
        )
        for result in results
    ]

"""Access of a command to Temporal: a client, a worker, and the delivery or backlog that a person's words name. Used by
the commands that look, decide, steer and retry; those that submit connect in `perdure.cli.request.submit`."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from temporalio.service import RPCError

from perdure import secrets
from perdure.adapters.system.home import Home
from perdure.cli.commands.options import LAST, WAITING
from perdure.cli.event_loop import run_coroutine
from perdure.cli.screen import Screen
from perdure.client import Backlog, Delivery, ListEntry, Perdure, RunDescription
from perdure.client.server.view import exact_id_query
from perdure.local.connect import connect_to_temporal, wrong_server_reason
from perdure.models.errors import BacklogNamed, BadInput
from perdure.models.ids import BACKLOG_WORKFLOW, find_scheduled_workflow, is_verification
from perdure.text import shell_word

_NEWEST = 20
"""Deliveries looked at to find the newest: all of them but one may be verifications."""

_CANDIDATES = 200
"""Newest deliveries among which the beginning of an id is looked up; older ones are found by their whole id."""


async def resolve_id(perdure: Perdure, text: str, decision: str = "") -> str:
    """Find the one delivery that `text` names and return its id.

    `text` is an id, the beginning of an id, the name of a schedule (its newest delivery), `@last` or `@waiting`. The id
    of a backlog means its only item that waits, where a decision is made; else it raises BacklogNamed. Raises BadInput
    when no delivery matches, or more than one.

    decision  the update by which the waiting delivery is decided; empty: any
    """
    if text == WAITING:
        return only_waiting_id(await perdure.list_waiting(), decision)
    if text == LAST:
        # What `perdure verify` starts is not a delivery that a person made.
        newest = [
            entry.delivery_id for entry in await perdure.list(limit=_NEWEST) if not is_verification(entry.delivery_id)
        ]
        if not newest:
            raise BadInput("there is no delivery yet", where=LAST, fix='perdure deliver "what you want"')
        return newest[0]
    if not text or text.startswith("-"):
        raise BadInput(f"{text!r} is no delivery id", fix="see perdure list")
    query = exact_id_query(text)
    if await perdure.list(limit=1, query=query):
        return text
    if await perdure.list(limit=1, query=query, workflow=BACKLOG_WORKFLOW):
        if decision:
            waiting_items = [
                entry for entry in await perdure.list_waiting() if entry.delivery_id.startswith(f"{text}/")
            ]
            return only_waiting_id(
                waiting_items, decision, where=text, fix=f"perdure backlog status {shell_word(text)}"
            )
        fix = f"perdure backlog status {shell_word(text)}; its deliveries are {text}/ITEM"
        raise BacklogNamed(f"{text} is a backlog, not a delivery", where=text, fix=fix)
    candidate_ids = [candidate.delivery_id for candidate in await perdure.list(limit=_CANDIDATES)]
    return find_scheduled_workflow(text, candidate_ids) or match_id_prefix(text, candidate_ids)


def only_waiting_id(
    entries: list[ListEntry],
    decision: str = "",
    where: str = WAITING,
    fix: str = "perdure list --waiting shows what waits",
) -> str:
    """Return the id of the only delivery in `entries` that waits for `decision`; empty: for any decision.

    Raises BadInput when none waits, or several do: a guess could approve the wrong one. `where` and `fix` go into that
    error.
    """
    waiting = [entry for entry in entries if not decision or decision in entry.options]
    if len(waiting) == 1:
        return waiting[0].delivery_id
    if not waiting:
        raise BadInput("no delivery waits for that", where=where, fix=fix)
    names = ", ".join(f"{entry.delivery_id} ({entry.waits_for})" for entry in waiting[:5])
    more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""
    raise BadInput(f"{len(waiting)} deliveries wait: name one", where=names + more, fix=fix)


def match_id_prefix(text: str, ids: list[str]) -> str:
    """Return the id that is `text`, or else the only one that begins with it.

    Raises BadInput when several begin with it, with the candidates, or none does, with the most similar id.
    """
    matches = sorted({id for id in ids if id.startswith(text)})
    if text in matches or len(matches) == 1:
        return text if text in matches else matches[0]
    if matches:
        more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
        raise BadInput(
            f"{len(matches)} deliveries begin with {text}",
            where=", ".join(matches[:5]) + more,
            fix="type a few letters more",
        )
    similar = difflib.get_close_matches(text, ids, n=1, cutoff=0.5)
    raise BadInput(f"no delivery {text}", fix=f"did you mean {similar[0]}?" if similar else "see perdure list")


T = TypeVar("T")
DeliveryOrBacklog = TypeVar("DeliveryOrBacklog", "Delivery", "Backlog")


async def connect_client(screen: Screen) -> Perdure:
    """Return a client that is connected to the configured Temporal server, else to this home's embedded one.

    Starts no server: raises TemporalUnreachable when it does not run or answer, and BadInput when the configuration
    cannot be read.
    """
    return Perdure(await connect_to_temporal(Home.find(), start=False, say=screen.say))


async def ensure_worker(screen: Screen) -> None:
    """Start this home's server and worker unless they run, and check that there is a key for the model.

    Does nothing where TEMPORAL_* names another server, whose workers do the work. Raises BadInput where the key is
    missing or differs from the running worker's, and PerdureError where server or worker cannot be started.
    """
    from perdure.cli.request.validation import check_key, workers_elsewhere
    from perdure.local.up import ensure_running

    if not workers_elsewhere():
        check_key(secrets.environment())
        await ensure_running(Home.find(), screen.say)


async def describe_on_own_server(
    screen: Screen, workflow: DeliveryOrBacklog, own_runs: set[str]
) -> tuple[RunDescription | None, DeliveryOrBacklog]:
    """Return what this home's server knows of a delivery or backlog, and the handle to ask next time.

    The first is None when another home's server has answered: the handle is then of a new client. That is checked after
    the call: one that began while the own server died is answered by whoever has its port by then. Raises what
    `describe` raises, and TemporalUnreachable while another server is there and this home's is not.

    own_runs  ids of runs that are known to be this home's, to which a new one is added: no other server has a run of
              the same id, so whose server it is need not be asked again
    """

    try:
        described: RunDescription | Exception = await workflow.describe()
    except (RPCError, BadInput) as error:
        described = error
    if isinstance(described, RunDescription) and described.run_id in own_runs:
        return described, workflow
    if await wrong_server_reason(workflow.client, Home.find()):
        return None, type(workflow)((await connect_client(screen)).client, workflow.id)
    if isinstance(described, Exception):
        raise described
    if (again := await workflow.describe()).run_id == described.run_id:  # nobody else has answered in between
        own_runs.add(described.run_id)
    return again, workflow


def run_with_delivery(screen: Screen, id: str, work: Callable[[Delivery], Awaitable[T]], *, decision: str = "") -> T:
    """Find the delivery that `id`, as a person typed it, names; run `work` on it and return its result.

    `decision` is the update for which a delivery has to wait where `id` is @waiting. Raises BadInput where `id` names
    no single delivery, TemporalUnreachable where no server answers, and what `work` raises.
    """

    async def resolve_and_run() -> T:
        perdure = await connect_client(screen)
        return await work(perdure.delivery(await resolve_id(perdure, id, decision)))

    return run_coroutine(resolve_and_run())


async def resolve_backlog(perdure: Perdure, text: str) -> str:
    """Find the one backlog that `text` names and return its id.

    `text` is an id, the beginning of an id, the name of a schedule (its newest backlog) or `@last`. Raises BadInput
    when no backlog matches, or more than one.
    """
    if await perdure.list(1, exact_id_query(text), workflow=BACKLOG_WORKFLOW):
        return text
    ids = [entry.delivery_id for entry in await perdure.list(_CANDIDATES, workflow=BACKLOG_WORKFLOW)]
    if text == LAST and ids:
        return ids[0]
    if scheduled_id := find_scheduled_workflow(text, ids):
        return scheduled_id
    matches = [id for id in ids if id.startswith(text)] if text else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
        names = ", ".join(matches[:5]) + more
        raise BadInput(f"{len(matches)} backlogs begin with {text}", where=names, fix="type a few letters more")
    if not ids:
        raise BadInput("there is no backlog yet", where=text, fix="perdure backlog start FILE")
    similar = difflib.get_close_matches(text, ids, n=1, cutoff=0.5)
    raise BadInput(
        f"no backlog {text}", fix=f"did you mean {similar[0]}?" if similar else f"there are {', '.join(ids[:5])}"
    )


def run_with_backlog(screen: Screen, id: str, work: Callable[[Backlog], Awaitable[T]]) -> T:
    """Find the backlog that `id`, as a person typed it, names; run `work` on it and return its result.

    Raises BadInput where `id` names no single backlog, TemporalUnreachable where no server answers, and what `work`
    raises.
    """

    async def resolve_and_run() -> T:
        perdure = await connect_client(screen)
        return await work(perdure.backlog(await resolve_backlog(perdure, id)))

    return run_coroutine(resolve_and_run())


async def read_pages(delivery: Delivery, what: str) -> AsyncIterator[str]:
    """Yield the text of `logs` or `diff`, page by page as the delivery's host reads it; one empty text when it has no
    host yet.

    Raises NoWorker when nobody can say which host it has, HostSilent or HostRefused when that does not answer or fails.
    """
    queue = (await delivery.progress()).queue
    offset: int | None = 0
    while offset is not None:
        page = await delivery.read_page(what, offset, queue)
        yield page.text
        offset = page.next

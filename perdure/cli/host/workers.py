"""Messages for when no worker answers: none runs, or this home's is being started again."""

from __future__ import annotations

from perdure.models.errors import NoWorker, PerdureError

NO_WORKER = "no worker is running: perdure up --detach starts one"
WORKER_STARTING = "the worker has not answered yet: it is starting, or the host is busy"
WORKER_RESTARTS = "this home's is starting, or the host is busy: ask again in some seconds"


def no_worker_reason() -> str:
    """Return the reason why no worker answers, as far as this host can tell.

    Where a supervisor of this home lives, it starts a worker again as soon as one dies: advice to start one would only
    confuse. Of workers on other hosts nothing is known here.
    """
    return WORKER_STARTING if has_supervisor() else NO_WORKER


def adapt_no_worker_error(error: PerdureError) -> PerdureError:
    """Return the error; a NoWorker error without advice to start a worker, where this home's supervisor does that."""
    if not (isinstance(error, NoWorker) and has_supervisor()):
        return error
    return PerdureError(
        error.what,
        where=error.where,
        fix=f"{WORKER_RESTARTS}; {error.consequence}" if error.consequence else WORKER_RESTARTS,
    )


def has_supervisor() -> bool:
    """Return whether a supervisor of this home lives, and Temporal is the embedded server for which it works."""
    from perdure.adapters.system.files import is_locked
    from perdure.adapters.system.home import Home
    from perdure.local.connect import external_server_config
    from perdure.local.places import Places

    return external_server_config() is None and is_locked(Places(Home.find()).supervisor_lock)

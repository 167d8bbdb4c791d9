"""The words for when no worker has answered: none runs, or this home's is being started again."""

from __future__ import annotations

from perdure.models.errors import NoWorker, PerdureError

NOBODY = "no worker is running: perdure up --detach starts one"
STARTING = "the worker has not answered yet: it is starting, or the host is busy"
COMES = "this home's is starting, or the host is busy: ask again in some seconds"


def absent() -> str:
    """The reason why nobody answers, as far as this host can tell.

    Where a supervisor of this home lives, it starts a worker again as soon as one dies: nobody has to do anything, and
    telling them to start one would only confuse. Of workers elsewhere nothing is known here.
    """
    return STARTING if supervised() else NOBODY


def unanswered(error: PerdureError) -> PerdureError:
    """The same error; of NoWorker, where a supervisor of this home lives, without a command that starts one more."""
    if not (isinstance(error, NoWorker) and supervised()):
        return error
    return PerdureError(error.what, where=error.where, fix=f"{COMES}; {error.then}" if error.then else COMES)


def supervised() -> bool:
    """True when a supervisor of this home lives, and Temporal is the one it works for."""
    from perdure.adapters.system.files import held
    from perdure.adapters.system.home import Home
    from perdure.local.connect import configured
    from perdure.local.places import Places

    return configured() is None and held(Places(Home.find()).supervisor_lock)

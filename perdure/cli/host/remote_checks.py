"""The checks of `perdure doctor` that look outside: at the repository it is run in, its forge, and webhooks; and the
line (`Checkup`) that every check of it returns."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from temporalio.service import RPCError

from perdure import secrets
from perdure.adapters.forges.base import AccessReport, HostedForge
from perdure.adapters.forges.select import Forges
from perdure.adapters.git.command import redact
from perdure.adapters.git.foreign_repository import foreign_git
from perdure.adapters.git.target import TargetRepository, resolve_repository
from perdure.adapters.notify.addresses import Listeners
from perdure.adapters.repository.host import load_host_config
from perdure.adapters.repository.terms import likely_branches
from perdure.adapters.system.home import Home
from perdure.cli.event_loop import run_coroutine
from perdure.cli.host.config import read_base_settings
from perdure.cli.request.issue import has_token
from perdure.cli.request.repository import origin_url
from perdure.client.doctor import NoticeAttempt, failed_notices, send_trial_notice
from perdure.local.access import fingerprint, forge_variables, notifies_same_people
from perdure.local.connect import connect_to_temporal, external_server_config, for_this_server
from perdure.local.places import read_running_supervisor
from perdure.models.config.repository import GitSettings
from perdure.models.errors import BadInput, ForgeUnavailable, PerdureError
from perdure.models.forges import FORGES
from perdure.text import visible

DOCTOR_FORGE_S = 20.0
"""Seconds for a forge to answer doctor's few questions, a second's work: somebody is waiting at a terminal."""


_QUEUE_VARIABLE, _ROLE_VARIABLE = "PERDURE_PUBLISHER_QUEUE", "PERDURE_WORKER_ROLE"

OK, NOTE, MISSING = "✓", "!", "✗"


@dataclass(frozen=True)
class Checkup:
    """One line of `perdure doctor`. `mark`: ✓ fine, ! worth knowing, ✗ deliveries will not work. `fix` may have several
    lines."""

    name: str
    mark: str
    text: str
    fix: str = ""


def failed_checkup(name: str, error: PerdureError, mark: str = MISSING) -> Checkup:
    """Return an error as a line of `perdure doctor`."""
    text = f"{error.what} ({error.where})" if error.where else error.what
    return Checkup(name, mark, text, error.fix)


def check_repository() -> list[Checkup]:
    """Check the repository of the current directory, and what this environment may do on its forge; return a line for
    each finding.

    Being in no repository is only noted. Blocks on git and the network, for a minute at most.
    """
    forges = Forges.from_environment(secrets.environment())
    target: TargetRepository | None = None
    try:
        target = resolve_repository(".", Path.cwd(), forges)
    except BadInput as error:
        finding = Checkup("repository", NOTE, f"here: {error.what}", error.fix)
        url, base, empty = origin_url(Path.cwd()) or "", _remembered_default_branch(Path.cwd()), False
    else:
        finding = Checkup("repository", OK, redact(target.url))
        url, base, empty = target.url, target.heads.default or "main", target.empty
    forge = forges.forge(url) if url else None
    if isinstance(forge, HostedForge):
        branches = _expected_branches(url, target)

        def check_access() -> AccessReport:
            return forge.check_access(base, branches, empty=empty)

        return [finding, *_check_forge_access(forge, forges, url, base, check_access, secrets.environment())]
    if finding.mark == OK:
        note = "pull requests are kept in it"
        if forge is None:
            note = "its forge is not spoken yet, the branch is pushed without a pull request"
        finding = Checkup("repository", OK if forge is not None else NOTE, f"{redact(url)}, {note}")
    return [finding]


def _expected_branches(url: str, target: TargetRepository | None) -> tuple[str, ...]:
    """Return names that the next deliveries' branches would get, by the settings of the base branch.

    By the default settings where those cannot be read: this is not the place to report that.
    """
    with suppress(PerdureError):
        if target is not None:
            return likely_branches(read_base_settings(target).config.git.branch, url)
    return likely_branches(GitSettings().branch, url)


def _check_forge_access(
    forge: HostedForge,
    forges: Forges,
    url: str,
    base: str,
    check_access: Callable[[], AccessReport],
    env: Mapping[str, str],
) -> list[Checkup]:
    """Check that this environment's token may push and open pull requests on the forge, and should be here at all.

    A token that can publish is too much where PERDURE_PUBLISHER_QUEUE leaves that to a publisher; none is needed here
    where a publisher or the workers of another server have one. Where the token is fine, checks also that the running
    worker has it.
    """
    queue, is_publisher = env.get(_QUEUE_VARIABLE, "").strip(), env.get(_ROLE_VARIABLE, "").strip() == "publisher"
    has_publisher = bool(queue) and not is_publisher
    if (has_publisher or external_server_config() is not None) and not has_token(forges, url, elsewhere=True):
        who_needs_one = (
            f"the publisher of {_QUEUE_VARIABLE}={queue} needs"
            if has_publisher
            else "the workers of that Temporal server need"
        )
        fix = (
            f"where it runs: {_ROLE_VARIABLE}=publisher perdure doctor"
            if has_publisher
            else "where they run: perdure doctor"
        )
        return [Checkup(forge.name, OK, f"{forge.web_url}: no token here, {who_needs_one} one", fix)]
    checkups = _query_access(forge, base, check_access)
    if has_publisher and not any(finding.mark == MISSING for finding in checkups):
        return [*checkups, _excess_access(forge)]
    if has_publisher:  # it cannot write, and need not
        return [
            Checkup(
                forge.name, OK, f"{forge.web_url}: what this environment holds cannot publish, the publisher's does"
            )
        ]
    if not any(finding.mark == MISSING for finding in checkups):
        return [*checkups, *_find_stale_worker(forge, env)]
    return checkups


def _query_access(forge: HostedForge, base: str, check_access: Callable[[], AccessReport]) -> list[Checkup]:
    """Call `check_access`, for at most DOCTOR_FORGE_S, and return its answer or its error as lines of `perdure doctor`.

    A forge that does not answer is a note; one that refuses is MISSING.
    """
    try:
        access = _call_within(DOCTOR_FORGE_S, check_access)
    except ForgeUnavailable as error:
        return [Checkup(forge.name, NOTE, f"{forge.web_url} could not be asked: {error.what}", error.fix)]
    except TimeoutError:
        return [Checkup(forge.name, NOTE, f"{forge.web_url} could not be asked: no answer in {DOCTOR_FORGE_S:.0f} s")]
    except PerdureError as error:
        what = f"{forge.account}: {error.what}" if forge.account else error.what
        return [failed_checkup(forge.name, PerdureError(what, where=error.where, fix=error.fix))]
    summary = f"{forge.account or 'the token'} may push to {access.repository} and open pull requests into {base}"
    return [Checkup(forge.name, OK, summary), *(Checkup(forge.name, NOTE, note) for note in access.notes)]


def _excess_access(forge: HostedForge) -> Checkup:
    """Return the note that this environment can publish, though a publisher of its own is configured."""
    return Checkup(
        forge.name,
        NOTE,
        f"this environment can publish, though {_QUEUE_VARIABLE} leaves that to the publisher",
        "give the token to `perdure worker --publisher` alone; here one that can read will do",
    )


def _find_stale_worker(forge: HostedForge, env: Mapping[str, str]) -> list[Checkup]:
    """Return a line if the running worker was started without the forge's token which this environment has.

    A worker keeps the environment of its start: a token that was exported later is not in it.
    """
    home = Home.find()
    supervisor = read_running_supervisor(home) if home.root.is_dir() else None
    if supervisor is None:
        return []
    tokenless = fingerprint(secrets.without_secrets(env), supervisor.started_at.isoformat(), forge_variables())
    if supervisor.forge_access != tokenless or not any(
        env.get(name, "").strip() for facts in FORGES for name in facts.secret_variables
    ):
        return []
    what = f"the running worker{supervisor.pid_suffix} was started without the token"
    return [Checkup(forge.name, MISSING, what, "perdure down; the next deliver starts one that has it")]


def _remembered_default_branch(cwd: Path) -> str:
    """Return the default branch as the clone remembers it, for when the remote cannot be asked; else `main`."""
    output = foreign_git(cwd).execute("symbolic-ref", "--short", "refs/remotes/origin/HEAD", ok=(0, 1, 128))
    return output.text.removeprefix("origin/") if output.returncode == 0 else "main"


def _call_within(seconds: float, function: Callable[[], AccessReport]) -> AccessReport:
    """Call the function in a thread and return its result, or raise its error.

    Raises TimeoutError after `seconds`; the thread then goes on until this process ends.
    """
    answers: list[AccessReport] = []
    errors: list[Exception] = []

    def call() -> None:
        try:
            answers.append(function())
        except Exception as error:  # noqa: BLE001 - raised again below, in the calling thread
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    for error in errors:
        raise error
    if not answers:
        raise TimeoutError
    return answers[0]


_FIX = "correct [notify] url or PERDURE_WEBHOOK_URL of the worker, or what answers there"


def check_notify() -> list[Checkup]:
    """Report who is notified when a delivery waits or ends, if anybody, and which notices could not be sent.

    A running worker that has other addresses or another secret than this environment is noted. Raises BadInput when the
    settings are wrong.
    """
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

    The worker's own addresses and secret count, as they do for deliveries. A single line says when no worker took it.
    Raises TemporalUnreachable when no server runs, and PerdureError where it refuses.
    """

    async def send_test_notices() -> list[NoticeAttempt]:
        client = await connect_to_temporal(Home.find(), start=False, say=lambda _: None)
        try:
            return await send_trial_notice(client)
        except RPCError as error:
            raise PerdureError(f"Temporal does not do that: {visible(error.message)}", fix="perdure doctor") from None

    if not (results := run_coroutine(send_test_notices())):
        fix = for_this_server("perdure up --detach starts one, then the same again")
        return [Checkup("notify", MISSING, "no worker took it", fix)]
    return [
        Checkup(
            "notify", OK if result.delivered else MISSING, visible(result.summary), "" if result.delivered else _FIX
        )
        for result in results
    ]

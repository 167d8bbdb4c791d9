"""The checks of `perdure doctor` on the repository it is run in, and on the forge it belongs to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from perdure import secrets
from perdure.cli.host.checkups import MISSING, NOTE, OK, Checkup, failed
from perdure.cli.host.config import settings_of
from perdure.cli.request.repository import origin_of
from perdure.models.errors import BadInput, ForgeUnavailable, PerdureError
from perdure.models.forges import FORGES

if TYPE_CHECKING:
    from perdure.adapters.forges.base import Access, HostedForge
    from perdure.adapters.forges.select import Forges
    from perdure.adapters.git.source import Target

DOCTOR_FORGE_S = 20.0
"""For a forge to answer doctor's handful of questions, a second's work: somebody is waiting at a terminal."""


_QUEUE, _ROLE = "PERDURE_PUBLISHER_QUEUE", "PERDURE_WORKER_ROLE"


def check_repository() -> list[Checkup]:
    """Blocks on git and the network, for a minute at most."""
    from perdure.adapters.forges.base import HostedForge
    from perdure.adapters.forges.select import Forges
    from perdure.adapters.git.door import redact
    from perdure.adapters.git.source import resolve

    forges = Forges.from_environment(secrets.environment())
    target: Target | None = None
    try:
        target = resolve(".", Path.cwd(), forges)
    except BadInput as error:
        finding = Checkup("repository", NOTE, f"here: {error.what}", error.fix)
        url, base, empty = origin_of(Path.cwd()) or "", _known_default(Path.cwd()), False
    else:
        finding = Checkup("repository", OK, redact(target.url))
        url, base, empty = target.url, target.heads.default or "main", target.empty
    forge = forges.forge(url) if url else None
    if isinstance(forge, HostedForge):
        branches = _branches(url, target)

        def ask() -> Access:
            return forge.check(base, branches, empty=empty)

        return [finding, *_hosted(forge, forges, url, base, ask, secrets.environment())]
    if finding.mark == OK:
        said = "pull requests are kept in it"
        if forge is None:
            said = "its forge is not spoken yet, the branch is pushed without a pull request"
        finding = Checkup("repository", OK if forge is not None else NOTE, f"{redact(url)}, {said}")
    return [finding]


def _branches(url: str, target: Target | None) -> tuple[str, ...]:
    """Names that its next deliveries would push, by the settings of its base branch, or by the defaults where those
    cannot be read: this is not the place to say so."""
    from perdure.adapters.repository.terms import likely_branches
    from perdure.models.config import GitSettings

    with suppress(PerdureError):
        if target is not None:
            return likely_branches(settings_of(target).config.git.branch, url)
    return likely_branches(GitSettings().branch, url)


def _hosted(
    forge: HostedForge, forges: Forges, url: str, base: str, ask: Callable[[], Access], env: Mapping[str, str]
) -> list[Checkup]:
    """Check that this environment's keys would do to publish there, and that it should hold them at all."""
    from perdure.cli.request.issue import token
    from perdure.local.connect import configured

    queue, publishes = env.get(_QUEUE, "").strip(), env.get(_ROLE, "").strip() == "publisher"
    spared = bool(queue) and not publishes
    if (spared or configured() is not None) and not token(forges, url, elsewhere=True):
        whose = f"the publisher of {_QUEUE}={queue} needs" if spared else "the workers of that Temporal server need"
        fix = f"where it runs: {_ROLE}=publisher perdure doctor" if spared else "where they run: perdure doctor"
        return [Checkup(forge.name, OK, f"{forge.web}: no token here, {whose} one", fix)]
    found = _asked(forge, base, ask)
    if spared and not any(finding.mark == MISSING for finding in found):
        return [*found, _too_much(forge)]
    if spared:  # it cannot write, and need not
        return [
            Checkup(forge.name, OK, f"{forge.web}: what this environment holds cannot publish, the publisher's does")
        ]
    if not any(finding.mark == MISSING for finding in found):
        return [*found, *_stale_worker(forge, env)]
    return found


def _asked(forge: HostedForge, base: str, ask: Callable[[], Access]) -> list[Checkup]:
    try:
        access = _within(DOCTOR_FORGE_S, ask)
    except ForgeUnavailable as error:
        return [Checkup(forge.name, NOTE, f"{forge.web} could not be asked: {error.what}", error.fix)]
    except TimeoutError:
        return [Checkup(forge.name, NOTE, f"{forge.web} could not be asked: no answer in {DOCTOR_FORGE_S:.0f} s")]
    except PerdureError as error:
        what = f"{forge.account}: {error.what}" if forge.account else error.what
        return [failed(forge.name, PerdureError(what, where=error.where, fix=error.fix))]
    fine = f"{forge.account or 'the token'} may push to {access.repository} and open pull requests into {base}"
    return [Checkup(forge.name, OK, fine), *(Checkup(forge.name, NOTE, note) for note in access.notes)]


def _too_much(forge: HostedForge) -> Checkup:
    return Checkup(
        forge.name,
        NOTE,
        f"this environment can publish, though {_QUEUE} leaves that to the publisher",
        "give the token to `perdure worker --publisher` alone; here one that can read will do",
    )


def _stale_worker(forge: HostedForge, env: Mapping[str, str]) -> list[Checkup]:
    """The running worker has the environment of its own start: a token that was exported later is not in it."""
    from perdure.adapters.system.home import Home
    from perdure.local.access import fingerprint, forge_names
    from perdure.local.places import read_supervisor

    home = Home.find()
    running = read_supervisor(home) if home.root.is_dir() else None
    if running is None:
        return []
    without = fingerprint(secrets.without_secrets(env), running.started_at.isoformat(), forge_names())
    if running.forge_access != without or not any(
        env.get(name, "").strip() for facts in FORGES for name in facts.secrets
    ):
        return []
    what = f"the running worker{running.pid_told} was started without the token"
    return [Checkup(forge.name, MISSING, what, "perdure down; the next deliver starts one that has it")]


def _known_default(cwd: Path) -> str:
    """The base branch as the clone remembers it, where the remote cannot be asked."""
    from perdure.adapters.git.visit import visiting

    found = visiting(cwd).run("symbolic-ref", "--short", "refs/remotes/origin/HEAD", ok=(0, 1, 128))
    return found.text.removeprefix("origin/") if found.returncode == 0 else "main"


def _within(seconds: float, ask: Callable[[], Access]) -> Access:
    """TimeoutError when there is no answer; whoever still waits for one then ends with this process."""
    answers: list[Access] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception as error:  # noqa: BLE001 - raised again below, in the thread that asked
            errors.append(error)

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(seconds)
    for error in errors:
        raise error
    if not answers:
        raise TimeoutError
    return answers[0]

"""The issue that is meant, and what can be known about it before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.cli.request.repository import origin_of
from perdure.models.errors import BadInput, ForgeRefused, ForgeUnavailable, InvalidRequest, TemporalUnreachable
from perdure.models.forges import forge_at, readable_issues
from perdure.models.issue import IssueName, address, mentioned, same_repository
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.adapters.forges.base import HostedForge
    from perdure.adapters.forges.select import Forges
    from perdure.adapters.system.home import Home

PUBLISHER_QUEUE = "PERDURE_PUBLISHER_QUEUE"
_TITLE_SHOWN = 80


@dataclass(frozen=True)
class Meant:
    """The work that is asked for: `words` of the submitter, an issue, or both.

    title    of the issue, empty when it could not be read from here: then the worker reads it
    refusal  why nothing can be started for this issue; a delivery of it that is there can still be come back to
    """

    words: str
    number: int | None = None
    title: str = ""
    refusal: InvalidRequest | None = None

    @property
    def shown(self) -> str:
        """`#12 "Accept compound durations"`; empty without an issue."""
        if self.number is None:
            return ""
        return f'#{self.number} "{one_line(self.title, _TITLE_SHOWN)}"' if self.title else f"#{self.number}"


def named_issue(option: str | None, text: str | None) -> IssueName | None:
    """The issue of `--issue`, or of a TEXT that is nothing but the address of one."""
    if option is not None:
        try:
            return IssueName.parse(option)
        except ValueError:
            fix = "--issue 12, --issue '#12' or --issue https://github.com/OWNER/NAME/issues/12"
            raise BadInput(f"{option[:100]!r} names no issue", where="--issue", fix=fix) from None
    if text is not None and "://" in text:
        try:
            return IssueName.parse(text)
        except ValueError:
            return None
    return None


def repository_for(repo: str | None, named: IssueName | None, cwd: Path) -> str:
    """`--repo`; else the issue's repository, which is this directory where its origin is that one; else `.`."""
    if repo is not None:
        return repo
    if named is None or named.repository is None:
        return "."

    origin = origin_of(cwd)
    return "." if origin is not None and same_repository(origin, named.repository) else named.repository


def meant(named: IssueName | None, text: str, url: str, forges: Forges, *, elsewhere: bool) -> Meant:
    """Find the issue and look at it; `url` is the target's. Raises BadInput.

    elsewhere  the workers have tokens of their own: what cannot be read here is left to them
    """
    forge, in_text = hosted(forges, url), named is None
    if named is None:
        numbers = mentioned(text) if forge is not None else ()
        if not numbers:
            return Meant(text)
        if len(numbers) > 1:
            several = ", ".join(f"#{number}" for number in numbers[:5])
            fix = f"name the one to deliver: --issue {numbers[0]}; the others stay words"
            raise BadInput(f"the request names {len(numbers)} issues: {several}", where="TEXT", fix=fix)
        named = IssueName(numbers[0])
    if not named.belongs_to(url):
        fix = f"--repo {named.repository}, or an issue of this repository"
        raise BadInput(f"issue {named.number} is one of another repository", where=f"{named.repository}", fix=fix)
    if forge is None and (address(url) is None or not elsewhere):
        fix = f"put its text into the request; issues are read on {readable_issues()}"
        raise BadInput("this repository has no issues that Perdure can read", where=url, fix=fix)
    title, refusal = "", None
    if forge is not None and token(forges, url, elsewhere=elsewhere):
        try:
            title = _title(forge, named.number, elsewhere=elsewhere)
        except InvalidRequest as error:
            refusal = _of_text(error, named.number) if in_text else error
    return Meant("" if _only_names(text, named) else text, named.number, title, refusal)


async def is_there(home: Home, id: str) -> bool:
    """True where a delivery has been started for the issue already: its own pull request may have closed it since."""
    from perdure.client import Perdure
    from perdure.local.connect import connect

    try:
        await Perdure(await connect(home, start=False, say=lambda _: None)).delivery(id).describe()
    except (BadInput, TemporalUnreachable):
        return False
    return True


def check_token(url: str, forges: Forges, env: Mapping[str, str]) -> None:
    """BadInput when this host's worker could not publish: it has no token for the forge it would publish to.

    A publisher of its own has one; who ships nothing needs none.
    """
    if hosted(forges, url) is None or env.get(PUBLISHER_QUEUE, "").strip() or token(forges, url, elsewhere=False):
        return
    host, name = address(url) or ("", url)
    facts = forge_at(host)
    raise BadInput(
        f"there is no token for {host or 'the forge'}, where the pull request is to be opened",
        where=" or ".join(facts.tokens_at(host)),
        fix=f"export one that may write to {name}: {facts.rights}",
    )


def publishes_here(url: str, env: Mapping[str, str]) -> bool:
    """True where this host's own worker is who a hosted forge will see."""
    from perdure.adapters.forges.select import Forges

    return not env.get(PUBLISHER_QUEUE, "").strip() and hosted(Forges.from_environment(dict(env)), url) is not None


def hosted(forges: Forges, url: str) -> HostedForge | None:
    """The forge of a repository, when it is one with issues and accounts."""
    from perdure.adapters.forges.base import HostedForge

    forge = forges.forge(url)
    return forge if isinstance(forge, HostedForge) else None


def token(forges: Forges, url: str, *, elsewhere: bool) -> bool:
    """True where this process is somebody to the forge of `url`, which may be an ssh address. BadInput when it is an
    App that is not let in there, and the workers would be no other."""
    if not url.startswith(("https://", "http://")):
        known = address(url)
        if known is None:
            return False
        url = f"https://{known[0]}/{known[1]}"
    try:
        return forges.credential(url) is not None
    except ForgeUnavailable:
        return True  # it has one to ask for, and will
    except ForgeRefused as error:
        if elsewhere:
            return False
        raise BadInput(error.what, where=error.where, fix=error.fix) from error


def _title(forge: HostedForge, number: int, *, elsewhere: bool) -> str:
    try:
        return forge.issue(number).title
    except ForgeUnavailable:
        return ""  # the worker waits until it is back, visibly
    except ForgeRefused as error:
        if elsewhere:
            return ""
        raise BadInput(error.what, where=error.where, fix=error.fix) from error


def _of_text(error: InvalidRequest, number: int) -> InvalidRequest:
    where = f"#{number} in TEXT, which is taken for the issue to deliver"
    return InvalidRequest(error.what, where=where, fix=f"name the issue, --issue N, or write {number} without the #")


def _only_names(text: str, named: IssueName) -> bool:
    """True where a text is nothing but the issue's name, and says nothing besides."""
    try:
        return IssueName.parse(text).number == named.number and not text.strip().isdecimal()
    except ValueError:
        return not text.strip()

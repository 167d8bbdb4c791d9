"""The issue that a request is about, and what can be known of it before anything is started; also the forge of a
repository and the token for it. Used by the checks and the submission of requests, by those of backlogs, and by doctor.

Adapters are imported where they are needed: loading them takes longer than finding a mistake in the options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.cli.request.repository import origin_url
from perdure.models.errors import BadInput, ForgeRefused, ForgeUnavailable, InvalidRequest, TemporalUnreachable
from perdure.models.forges import forge_of_host, issue_sources
from perdure.models.issue import IssueName, is_same_repository, mentioned_issues, parse_repository_address
from perdure.text import one_line, shell_word, shorten

if TYPE_CHECKING:
    from perdure.adapters.forges.base import HostedForge
    from perdure.adapters.forges.select import Forges
    from perdure.adapters.system.home import Home

PUBLISHER_QUEUE_VARIABLE = "PERDURE_PUBLISHER_QUEUE"
_TITLE_SHOWN = 80


@dataclass(frozen=True)
class RequestedWork:
    """The work that is asked for: the submitter's `text`, an issue, or both.

    title    of the issue; empty when it could not be read from here: then the worker reads it
    refusal  why nothing can be started for this issue; a delivery of it that exists can still be attached to
    """

    text: str
    number: int | None = None
    title: str = ""
    refusal: InvalidRequest | None = None

    @property
    def issue_label(self) -> str:
        """Return the issue as `#12 "Accept compound durations"`; empty without an issue."""
        if self.number is None:
            return ""
        return f'#{self.number} "{one_line(self.title, _TITLE_SHOWN)}"' if self.title else f"#{self.number}"


def parse_issue_name(option: str | None, text: str | None) -> IssueName | None:
    """Parse the issue of `--issue`, or of a TEXT that is nothing but an issue's address; None where neither names one.

    Raises BadInput for an `--issue` that names no issue.
    """
    if option is not None:
        try:
            return IssueName.parse(option)
        except ValueError:
            fix = "--issue 12, --issue '#12' or --issue https://github.com/OWNER/NAME/issues/12"
            raise BadInput(f"{shorten(option, 100)!r} names no issue", where="--issue", fix=fix) from None
    if text is not None and "://" in text:
        try:
            return IssueName.parse(text)
        except ValueError:
            return None
    return None


def choose_repository(repo: str | None, issue_name: IssueName | None, cwd: Path) -> str:
    """Return the repository to deliver to: that of `--repo`, else that of the issue, else `.`.

    The issue's repository is `.` where it is the origin of the checkout in `cwd`.
    """
    if repo is not None:
        return repo
    if issue_name is None or issue_name.repository is None:
        return "."

    origin = origin_url(cwd)
    return "." if origin is not None and is_same_repository(origin, issue_name.repository) else issue_name.repository


def find_requested_work(
    issue_name: IssueName | None, text: str, url: str, forges: Forges, *, elsewhere: bool
) -> RequestedWork:
    """Find the issue that is named, or mentioned in the text, and read its title; return the work that is asked for.

    `url` is the repository's. Raises BadInput where the text mentions several issues, the issue is another
    repository's, or no issues can be read there. An issue that cannot be delivered, such as a closed one, is a
    `refusal` of the result. A text that is nothing but the issue's name counts as empty.

    elsewhere  the workers have tokens of their own: what cannot be read here is left to them
    """
    forge, is_from_text = hosted_forge(forges, url), issue_name is None
    if issue_name is None:
        numbers = mentioned_issues(text) if forge is not None else ()
        if not numbers:
            return RequestedWork(text)
        if len(numbers) > 1:
            several = ", ".join(f"#{number}" for number in numbers[:5])
            fix = f"name the one to deliver: --issue {numbers[0]}; the others stay words"
            raise BadInput(f"the request names {len(numbers)} issues: {several}", where="TEXT", fix=fix)
        issue_name = IssueName(numbers[0])
    if not issue_name.may_belong_to(url):
        fix = f"--repo {issue_name.repository}, or an issue of this repository"
        raise BadInput(
            f"issue {issue_name.number} is one of another repository", where=f"{issue_name.repository}", fix=fix
        )
    if forge is None and (parse_repository_address(url) is None or not elsewhere):
        fix = f"put its text into the request; issues are read on {issue_sources()}"
        raise BadInput("this repository has no issues that Perdure can read", where=url, fix=fix)
    title, refusal = "", None
    if forge is not None and has_token(forges, url, elsewhere=elsewhere):
        try:
            title = _read_title(forge, issue_name.number, elsewhere=elsewhere)
        except InvalidRequest as error:
            refusal = _explain_text_issue(error, issue_name.number) if is_from_text else error
    return RequestedWork("" if _is_only_issue_name(text, issue_name) else text, issue_name.number, title, refusal)


async def delivery_exists(home: Home, id: str) -> bool:
    """Return whether a delivery of this id was ever started; False also where Temporal does not run.

    An issue that is closed may have been closed by that delivery's pull request.
    """
    from perdure.client import Perdure
    from perdure.local.connect import connect_to_temporal

    try:
        await Perdure(await connect_to_temporal(home, start=False, say=lambda _: None)).delivery(id).describe()
    except (BadInput, TemporalUnreachable):
        return False
    return True


def check_token(url: str, forges: Forges, env: Mapping[str, str]) -> None:
    """Raise BadInput where this host's worker has no token for the forge on which it would publish.

    Nothing is required where a publisher of its own is configured, or the repository has no hosted forge. For requests
    that publish nothing it is not to be called.
    """
    if (
        hosted_forge(forges, url) is None
        or env.get(PUBLISHER_QUEUE_VARIABLE, "").strip()
        or has_token(forges, url, elsewhere=False)
    ):
        return
    host, name = parse_repository_address(url) or ("", url)
    facts = forge_of_host(host)
    raise BadInput(
        f"there is no token for {host or 'the forge'}, where the pull request is to be opened",
        where=" or ".join(facts.token_variables_for(host)),
        fix=f"export one that may write to {shell_word(name)}: {facts.required_rights}",
    )


def own_worker_publishes(url: str, env: Mapping[str, str]) -> bool:
    """Return whether this host's own worker publishes to a hosted forge: no separate publisher is configured.

    Raises BadInput for wrong settings of forges.
    """
    from perdure.adapters.forges.select import Forges

    return (
        not env.get(PUBLISHER_QUEUE_VARIABLE, "").strip()
        and hosted_forge(Forges.from_environment(dict(env)), url) is not None
    )


def hosted_forge(forges: Forges, url: str) -> HostedForge | None:
    """Return the repository's forge if it is one with issues and accounts; else None."""
    from perdure.adapters.forges.base import HostedForge

    forge = forges.forge(url)
    return forge if isinstance(forge, HostedForge) else None


def has_token(forges: Forges, url: str, *, elsewhere: bool) -> bool:
    """Return whether this process has a credential for the forge of `url`, which may be an ssh address.

    False for an address without a server. True also where one has to be fetched and the forge is away. Where the forge
    refuses (an App that is not installed there): False with `elsewhere`, since the workers may be somebody else,
    otherwise BadInput.
    """
    if not url.startswith(("https://", "http://")):
        host_and_name = parse_repository_address(url)
        if host_and_name is None:
            return False
        url = f"https://{host_and_name[0]}/{host_and_name[1]}"
    try:
        return forges.credential(url) is not None
    except ForgeUnavailable:
        return True  # it has one to ask for, and will
    except ForgeRefused as error:
        if elsewhere:
            return False
        raise BadInput(error.what, where=error.where, fix=error.fix) from error


def _read_title(forge: HostedForge, number: int, *, elsewhere: bool) -> str:
    """Return the issue's title; empty where the forge is away, or refuses while the workers are `elsewhere`.

    Raises InvalidRequest for an issue that is closed, locked or a pull request, and BadInput where the forge refuses.
    """
    try:
        return forge.fetch_issue(number).title
    except ForgeUnavailable:
        return ""  # the worker waits visibly until it is back
    except ForgeRefused as error:
        if elsewhere:
            return ""
        raise BadInput(error.what, where=error.where, fix=error.fix) from error


def _explain_text_issue(error: InvalidRequest, number: int) -> InvalidRequest:
    """Return the error with the hint that the issue was taken from the request's text."""
    where = f"#{number} in TEXT, which is taken for the issue to deliver"
    return InvalidRequest(error.what, where=where, fix=f"name the issue, --issue N, or write {number} without the #")


def _is_only_issue_name(text: str, issue_name: IssueName) -> bool:
    """Return whether a text is blank or nothing but the issue's name; a bare number counts as words of its own."""
    try:
        return IssueName.parse(text).number == issue_name.number and not text.strip().isdecimal()
    except ValueError:
        return not text.strip()

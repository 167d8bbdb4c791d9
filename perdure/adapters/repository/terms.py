"""The terms of a delivery, settled and checked before anything is paid for: its repository and checkout, its base, the
name of its branch, whether that can be worked on or landed, and the issue's text, fetched once and cut to size.
Activities build the contract of a delivery or backlog of them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.forges.base import Forge, HostedForge
from perdure.adapters.git.credentials import Keyring
from perdure.adapters.git.publish import conflicting_branch, is_branch_name, is_made_by
from perdure.adapters.git.remote import Heads, write_first_commit
from perdure.adapters.git.target import (
    ELSEWHERE,
    TargetRepository,
    check_checkout,
    find_git_paths,
    local_path,
    locate_repository,
)
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.request import DeliveryRequest, is_valid_proof
from perdure.models.delivery.turn import Contract
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.forges import issue_sources
from perdure.models.ids import delivery_id, digest, issue_delivery_id, slug
from perdure.models.issue import ForgeIssue, IssueComment, IssueName
from perdure.models.limits import NAME_CHARS
from perdure.models.phases import Kind, Phase
from perdure.text import one_line, shorten, valid_text

NO_KIND = "change"
"""In place of {kind} where nobody classified the request: a plan came with it, or no plan is wanted."""


def branch_name(
    template: str, delivery: str, request: DeliveryRequest, issue: ForgeIssue | None, where: str, kind: str = NO_KIND
) -> str:
    """Return the branch's name from the template in `[git] branch`.

    {id} is the delivery, {slug} the first words of the request or of the issue's title, {issue} its number, empty
    without one, {kind} the kind of the request as `classify` finds it (`bug`). Raises InvalidRequest for any other
    placeholder, and for a name that is too long. Whether git allows the name is not checked.

    where  names the template's origin in errors
    """
    title = request.request if request.request.strip() or issue is None else issue.title
    number = str(issue.number) if issue is not None else ""
    values = {"{id}": delivery, "{slug}": slug(title), "{issue}": number, "{kind}": kind}
    parts = re.split(r"(\{[a-z]+\})", template)  # not str.format: a width in it would be obeyed
    if any(("{" in part or "}" in part) and part not in values for part in parts):
        raise InvalidRequest(
            f"git.branch: {shorten(template, NAME_CHARS)!r} has a place that is not known here",
            where=where,
            fix="use {id}, {kind}, {slug} and {issue}",
        )
    name = "".join(values.get(part, part) for part in parts)
    if len(name) > NAME_CHARS:
        what = f"git.branch: makes a name of {len(name)} characters, at most {NAME_CHARS} fit"
        raise InvalidRequest(what, where=where, fix="shorten it")
    return name


def branch_names(
    template: str,
    delivery: str,
    request: DeliveryRequest,
    issue: ForgeIssue | None,
    where: str,
    branch_base: BranchBase,
) -> dict[str, str]:
    """Return kind → the name of the branch, for each kind that this delivery may turn out to be, and under "" for none.

    Where the template has no {kind}, there is only that one. Each name can be pushed: where the text of a request or an
    issue makes one that cannot be, the delivery's digest is appended. Raises InvalidRequest where it cannot be pushed
    even so, the template has an unknown placeholder, or a name is too long; ForgeRefused or ForgeUnavailable where an
    existing branch cannot be fetched.
    """
    kinds = {"": NO_KIND} | ({str(kind): str(kind) for kind in Kind} if "{kind}" in template else {})
    names = {}
    for kind, kind_text in kinds.items():
        name = branch_name(template, delivery, request, issue, where, kind_text)
        problem = branch_base.unpushable_reason(name)
        if problem and "{slug}" in template:
            name = f"{name}-{digest(delivery)[:8]}"
            problem = branch_base.unpushable_reason(name)
        if problem:
            examples = (
                example
                for example in ("perdure/{id}", "perdure-{id}")  # the latter where a branch is called perdure
                if not branch_base.unpushable_reason(branch_name(example, delivery, request, issue, where, kind_text))
            )
            example = next(examples, "agents/{id}")
            fix = f"set [git] branch to a name of its own, such as {example}; or deliver under another id"
            raise InvalidRequest(f"git.branch: {problem}", where=where, fix=fix)
        names[kind] = name
    return names


def likely_branches(template: str, repository: str) -> tuple[str, ...]:
    """Return names such as the next deliveries' branches would get, so that somebody can check whether they may be
    pushed.

    They are made from a text and from an issue, for each kind where the template has {kind}. Raises InvalidRequest as
    `branch_name` does.
    """
    text, issue = "A request", ForgeIssue(number=1, title="An issue", url="")
    kinds = tuple(map(str, Kind)) if "{kind}" in template else (NO_KIND,)
    text_request = DeliveryRequest(repository=repository, request=text)
    issue_request = DeliveryRequest(repository=repository, request="", issue="1")
    names = []
    for kind in kinds:
        names.append(branch_name(template, delivery_id(repository, text, repository), text_request, None, "", kind))
        names.append(branch_name(template, issue_delivery_id(repository, 1), issue_request, issue, "", kind))
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class BranchBase:
    """The facts a delivery's branch is checked against: the remote's branches, and the base that it begins on."""

    vault: Vault
    heads: Heads
    base: str
    base_sha: str
    delivery: str

    def unpushable_reason(self, name: str) -> str:
        """Return the reason why a branch of this name cannot be pushed, in words; empty where it can.

        The name is not valid, is that of the base or default branch, is in the way of another branch, or is a branch
        with commits that are not this delivery's. An existing branch is fetched for this: raises ForgeRefused or
        ForgeUnavailable when it cannot be.
        """
        shown = shorten(name, NAME_CHARS)
        if not is_branch_name(self.vault, name):
            return f"{shown!r} cannot be a branch's name"
        if name in (self.base, self.heads.default):
            return f"{shown} is the {'base' if name == self.base else 'default'} branch: nobody delivers onto it"
        if other := conflicting_branch(self.heads.branches, name):
            return f"the remote has a branch {other}, so that {shown} cannot exist beside it"
        tip = self.heads.branches.get(name)
        if tip is not None and not is_made_by(self.vault, self.delivery, name, self.base_sha, tip):
            return f"the remote has a branch {shown} already, with commits that are not this delivery's ({tip[:12]})"
        return ""


def check_branch(
    vault: Vault,
    request: DeliveryRequest,
    phases: Sequence[str],
    base: str,
    base_sha: str,
    head: str,
    default: str | None = None,
) -> None:
    """Raise InvalidRequest where the existing branch of a request cannot be worked on in these phases.

    It is the base itself; or the default branch, and would be pushed to; or the phases are about what differs from the
    base, and it shares no commit with the base, or has none that the base has not.

    head     its tip
    default  the remote's default branch
    """
    pushed = request.push or (Phase.SHIP in phases and tuple(phases) != (Phase.SHIP,))
    if request.branch == default and pushed and default != base:
        fix = "name another branch, or leave it out to begin from the base"
        raise InvalidRequest(
            f"branch: {default} is the default branch: nobody delivers onto it", where=request.repository, fix=fix
        )
    if request.branch == base:
        fix = "name another branch, or leave it out to begin from the base"
        raise InvalidRequest(f"branch: {base} is the base itself", where=request.repository, fix=fix)
    compares = Phase.REVIEW in phases or Phase.SHIP in phases
    if compares and vault.git.execute("merge-base", "--end-of-options", base_sha, head, ok=(0, 1)).returncode:
        raise InvalidRequest(
            f"branch: {request.branch} shares no commit with {base}: it could not be merged there",
            where=request.repository,
            fix="name the base that it was begun from",
        )
    if compares and Phase.BUILD not in phases and vault.is_ancestor(head, base_sha):
        raise InvalidRequest(
            f"branch: {request.branch} has no commit that {base} has not",
            where=request.repository,
            fix="push what you want reviewed or proposed, or name another branch",
        )


def check_can_land(config: RepositoryConfig) -> None:
    """Raise InvalidRequest where nothing that is built under these settings could land, before anybody pays for it:
    they select the build, leave out tests or review, and do not set `allow_untested`.

    A repository without a test command is no such case: another item may bring one.
    """
    chosen = config.delivery.phases
    if config.ship.allow_untested or Phase.BUILD not in chosen:
        return
    left_out = [phase for phase in (Phase.TEST, Phase.REVIEW) if phase not in chosen]
    if left_out:
        raise InvalidRequest(
            f"phases: nothing lands without {' and '.join(left_out)}, and the settings leave that out",
            where="delivery.phases",
            fix="select it, or set allow_untested = true below [ship]",
        )


def fetch_base(vault: Vault, target: TargetRepository, request: DeliveryRequest) -> tuple[str, str]:
    """Fetch the base branch into the vault, and return (its name, its commit). Of an empty repository the first commit
    is written to the vault instead, and not pushed yet.

    Raises InvalidRequest for a base that does not exist; ForgeRefused or ForgeUnavailable when it cannot be fetched.
    """
    if not target.empty:
        return vault.fetch(request.base, target.heads)
    try:
        name, _ = target.base_branch(request.base)
    except BadInput as error:
        raise InvalidRequest(f"base: {error.what}", where=error.where, fix=error.fix) from None
    return name, write_first_commit(vault.objects)


def delivery_title(vault: Vault, contract: Contract) -> str:
    """Return a delivery's title: its issue's; or, where there is neither issue nor written request, the subject of the
    newest commit of its existing branch. Merges are passed over while there is another commit.

    Empty where a request was written, or there is no existing branch.
    """
    if contract.issue is not None:
        return contract.issue.title
    if contract.request.strip() or not contract.existing:
        return ""
    log = ("log", "-1", "--format=%s")
    subject: str = vault.git.text(*log, "--no-merges", "--end-of-options", contract.head, f"^{contract.base_sha}")
    subject = subject or vault.git.text(*log, "--end-of-options", contract.head)
    return one_line(subject)


def retry_token_limit(requested: int, host_limit: int | None) -> int:
    """Return the tokens that a retry may use, the smaller of both limits; 0 or None is no limit."""
    return min((limit for limit in (requested, host_limit) if limit), default=0)


_ALLOW = "local_repositories in the user file, or PERDURE_LOCAL_REPOSITORIES, allows directories (docs/submitting.md)"


def is_from_this_home(home: Home, delivery: str, request: DeliveryRequest, workflow_id: str = "") -> bool:
    """Return whether whoever wrote the request knows this home's key. Everybody who reaches Temporal can write one.

    workflow_id  by it a request that a schedule has started is proven
    """
    request_fields = request.model_dump(mode="json", exclude_defaults=True)
    return any(is_valid_proof(request.proof, home.key(), id, request_fields) for id in (delivery, workflow_id))


def find_target(request: DeliveryRequest, ours: bool, allowed: Sequence[str], keys: Keyring) -> TargetRepository:
    """Return the repository of a request, after asking its remote for the branches.

    ours     the request comes from this home
    allowed  directories in which anybody may name repositories

    Raises InvalidRequest for a repository on this host, where the request is not ours and none of those directories
    holds it; BadInput for one that is none, is refused or unsafe; ForgeUnavailable when its remote does not answer.
    """
    if ours:
        return locate_repository(request.repository, Path.cwd(), keys)
    _check_allowed(local_path(request.repository), allowed)  # before anything there is looked at
    target = locate_repository(request.repository, ELSEWHERE, keys)
    _check_allowed(local_path(target.url), allowed)  # a checkout there may have its origin anywhere
    return target


def find_source(request: DeliveryRequest, ours: bool, target: TargetRepository, needed: bool) -> str:
    """Return the submitter's checkout, from which setup copies files; empty where the request names none, or none is
    needed.

    ours    the request comes from this home
    needed  something is to be copied from it

    Raises InvalidRequest where it is needed, and the request does not come from this home or names what is no checkout
    of the repository.
    """
    if request.source is None or not needed:
        return ""
    if not ours:
        raise InvalidRequest(
            "source: [setup] copy takes files of this host only for requests that come from this PERDURE_HOME",
            fix="submit with perdure deliver on the worker's host, or leave out source",
        )
    try:
        return str(check_checkout(request.source, target.url))
    except BadInput as error:
        raise InvalidRequest(f"source: {error.what}", where=error.where, fix=error.fix) from None


def _check_allowed(path: Path | None, allowed: Sequence[str]) -> None:
    """Raise InvalidRequest for a path on this host that is in none of the allowed directories, links followed, is not
    absolute, or has a `%`, and for a repository of which git would read a part elsewhere: its git directory, objects
    that it borrows, or what links in it lead to. None, which is no path, is allowed."""
    if path is None:
        return
    places = [Path(os.path.realpath(os.path.expanduser(place))) for place in allowed]

    def is_inside(real_path: Path) -> bool:
        """Return whether a path without links is in one of the allowed directories."""
        return any(real_path.is_relative_to(place) for place in places)

    real = Path(os.path.realpath(path))
    if not path.is_absolute() or "%" in str(path) or not is_inside(real):
        raise InvalidRequest(
            "repository: a path of the worker's host counts only in requests that come from its PERDURE_HOME",
            where=shorten(str(path), 200),
            fix=f"submit with perdure deliver there, or name a URL; {_ALLOW}",
        )
    try:
        outside = next((part for part in find_git_paths(real) if not is_inside(part)), None)
    except OSError as error:
        raise InvalidRequest(f"repository: {error.strerror}", where=shorten(str(error.filename), 200)) from error
    if outside is not None:
        raise InvalidRequest(
            "repository: git would read a part of it outside of the directories that are allowed",
            where=shorten(f"{path}, by a link, `.git`, `commondir` or alternates: {outside}", 300),
            fix=f"use a clone of its own (git clone --no-hardlinks); {_ALLOW}",
        )


ISSUE_BYTES = 64 * 1024
"""Of an issue's text and comments together, as much as a request may have: some 20,000 tokens in every step."""

ISSUE_COMMENT_BYTES = 16 * 1024
"""Of one comment: a pasted log must not push out what people said."""

ISSUE_TITLE_CHARS = 300
"""Of an issue's title, which goes into history: GitHub allows 256, others more."""


_COMMENT_OVERHEAD = 100
"""Bytes that are counted for author and time of a comment."""

_NAME_CHARS = 100
_LABELS = 100
_REMARK_CHARS = 200


def fetch_issue(forge: Forge | None, issue_name: str, url: str) -> ForgeIssue:
    """Fetch the open issue of the repository at `url` from its forge, and return it bounded in size (see bound_issue).

    Raises InvalidRequest where the issue is of another repository, this one has no issues, or it cannot be worked on
    (closed, locked); ForgeRefused when the forge refuses; ForgeUnavailable when it does not answer.
    """
    name = IssueName.parse(issue_name)
    if not name.may_belong_to(url):
        raise InvalidRequest(
            f"issue: {name.repository}/issues/{name.number} is not an issue of this repository",
            where=url,
            fix="name an issue of the repository, or the issue's repository",
        )
    if not isinstance(forge, HostedForge):
        raise InvalidRequest(
            "issue: this repository has no issues Perdure can read",
            where=url,
            fix=f"put its text into `request`; issues are read on {issue_sources()}",
        )
    return bound_issue(forge.fetch_issue(name.number))


def bound_issue(issue: ForgeIssue) -> ForgeIssue:
    """Return the issue with at most ISSUE_BYTES of text and comments together, and a bounded title, author and labels.

    Long texts lose their middle; then the oldest comments are left out, and a comment without an author says how many.
    A short first comment without an author, by which the forge says the same, stays.
    """
    text = _cut_middle(issue.text, ISSUE_BYTES)
    remaining = ISSUE_BYTES - len(text.encode())
    first = issue.comments[:1]
    remarks = [candidate for candidate in first if not candidate.author and len(candidate.text) <= _REMARK_CHARS]
    comments = [_bound_comment(candidate) for candidate in issue.comments[len(remarks) :]]
    kept: list[IssueComment] = []
    for comment in reversed(comments):
        remaining -= len(comment.text.encode()) + _COMMENT_OVERHEAD
        if remaining < 0:
            break
        kept.insert(0, comment)
    if dropped := len(comments) - len(kept):
        omission = f"{dropped} older comment{'s are' if dropped > 1 else ' is'} left out here: the issue is long"
        remarks.append(IssueComment(author="", text=omission))
    return issue.model_copy(
        update={
            "title": one_line(valid_text(issue.title), ISSUE_TITLE_CHARS),
            "text": text,
            "author": one_line(valid_text(issue.author), _NAME_CHARS),
            "labels": tuple(one_line(valid_text(label), _NAME_CHARS) for label in issue.labels[:_LABELS]),
            "comments": (*remarks, *kept),
        }
    )


def _bound_comment(comment: IssueComment) -> IssueComment:
    """Return a comment of at most ISSUE_COMMENT_BYTES, its author on one line."""
    author = one_line(valid_text(comment.author), _NAME_CHARS)
    return comment.model_copy(update={"author": author, "text": _cut_middle(comment.text, ISSUE_COMMENT_BYTES)})


def _cut_middle(text: str, limit: int) -> str:
    """Return the text with at most `limit` bytes: a third from its beginning, the rest from its end, between them a
    line that says how much is left out."""
    encoded = valid_text(text).encode()
    if len(encoded) <= limit:
        return encoded.decode()
    gap = f"\n[… {len(encoded) - limit} bytes left out …]\n"
    kept_bytes = limit - len(gap.encode())
    head, tail = encoded[: kept_bytes // 3], encoded[len(encoded) - (kept_bytes - kept_bytes // 3) :]
    return head.decode(errors="ignore") + gap + tail.decode(errors="ignore")

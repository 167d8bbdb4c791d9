"""The terms of a delivery about its base and its branch: names made from what was asked for, and whether it is one to
work on."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.branch import in_the_way, is_branch_name
from perdure.adapters.git.credentials import Keyring
from perdure.adapters.git.first import make_first
from perdure.adapters.git.publish import made_by
from perdure.adapters.git.remote import Heads
from perdure.adapters.git.source import ELSEWHERE, Target, check_checkout, locate, place_on_host
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.models.config import RepositoryConfig
from perdure.models.contract import Contract
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.ids import delivery_id, digest, issue_delivery_id, slug
from perdure.models.issue import Issue
from perdure.models.limits import NAME_CHARS
from perdure.models.phases import Kind, Phase
from perdure.models.proof import proves
from perdure.models.request import DeliveryRequest

NO_KIND = "change"
"""In place of {kind} where nobody asked what it is: a plan came with the request, or no plan is wanted."""


def branch_of(
    template: str, delivery: str, request: DeliveryRequest, issue: Issue | None, where: str, kind: str = NO_KIND
) -> str:
    """`[git] branch`: {id} is the delivery, {slug} the first words of the request or of the issue's title, {issue} its
    number, empty without one, {kind} what `classify` calls it. InvalidRequest for any other place."""
    words = request.request if request.request.strip() or issue is None else issue.title
    number = str(issue.number) if issue is not None else ""
    places = {"{id}": delivery, "{slug}": slug(words), "{issue}": number, "{kind}": kind}
    parts = re.split(r"(\{[a-z]+\})", template)  # not str.format: a width in it would be obeyed
    if any(("{" in part or "}" in part) and part not in places for part in parts):
        raise InvalidRequest(
            f"git.branch: {template[:NAME_CHARS]!r} has a place that is not known here",
            where=where,
            fix="use {id}, {kind}, {slug} and {issue}",
        )
    name = "".join(places.get(part, part) for part in parts)
    if len(name) > NAME_CHARS:
        what = f"git.branch: makes a name of {len(name)} characters, at most {NAME_CHARS} fit"
        raise InvalidRequest(what, where=where, fix="shorten it")
    return name


def branches_of(
    template: str, delivery: str, request: DeliveryRequest, issue: Issue | None, where: str, ground: BranchBase
) -> dict[str, str]:
    """The branch for each kind that this delivery may turn out to be, and under "" for none; one alone where its name
    does not say the kind. Each can be pushed: where words of others make a name that is taken, the delivery's digest
    follows it. InvalidRequest where the owner's own words do.
    """
    kinds = {"": NO_KIND} | ({str(kind): str(kind) for kind in Kind} if "{kind}" in template else {})
    found = {}
    for kind, word in kinds.items():
        name = branch_of(template, delivery, request, issue, where, word)
        problem = ground.taken(name)
        if problem and "{slug}" in template:
            name = f"{name}-{digest(delivery)[:8]}"
            problem = ground.taken(name)
        if problem:
            fix = "set [git] branch to a name of its own, such as perdure/{id}; or deliver with another --id"
            raise InvalidRequest(f"git.branch: {problem}", where=where, fix=fix)
        found[kind] = name
    return found


def likely_branches(template: str, repository: str) -> tuple[str, ...]:
    """Names such as the next deliveries' branches would get: from words and from an issue, of each kind that the name
    says. InvalidRequest as above."""
    words, issue = "A request", Issue(number=1, title="An issue", url="")
    kinds = tuple(map(str, Kind)) if "{kind}" in template else (NO_KIND,)
    of_words = DeliveryRequest(repository=repository, request=words)
    of_issue = DeliveryRequest(repository=repository, request="", issue=1)
    names = []
    for kind in kinds:
        names.append(branch_of(template, delivery_id(repository, words, repository), of_words, None, "", kind))
        names.append(branch_of(template, issue_delivery_id(repository, 1), of_issue, issue, "", kind))
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class BranchBase:
    """The ground of a delivery's branch: the remote's branches, and the commit it begins on."""

    vault: Vault
    heads: Heads
    base: str
    base_sha: str
    delivery: str

    def taken(self, name: str) -> str:
        """The reason why a branch of this name cannot be pushed, in words; empty when it can."""
        shown = name[:NAME_CHARS]
        if not is_branch_name(self.vault, name):
            return f"{shown!r} cannot be a branch's name"
        if name in (self.base, self.heads.default):
            return f"{shown} is the {'base' if name == self.base else 'default'} branch: nobody delivers onto it"
        if other := in_the_way(self.heads.branches, name):
            return f"the remote has a branch {other}, so that {shown} cannot exist beside it"
        tip = self.heads.branches.get(name)
        if tip is not None and not made_by(self.vault, self.delivery, name, self.base_sha, tip):
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
    """InvalidRequest unless an existing branch is another than the base, with something on it where these phases are
    about what differs, and none that nobody pushes to. `head`: its tip; `default`: the remote's default branch."""
    pushed = request.push or (Phase.SHIP in phases and tuple(phases) != (Phase.SHIP,))
    if request.branch == default and pushed and default != base:
        fix = "name another branch, or leave it out to begin from the base"
        raise InvalidRequest(
            f"branch: {default} is the default branch: nobody delivers onto it", where=request.repository, fix=fix
        )
    if request.branch == base:
        fix = "name another branch, or leave it out to begin from the base"
        raise InvalidRequest(f"branch: {base} is the base itself", where=request.repository, fix=fix)
    differs = Phase.BUILD not in phases and (Phase.REVIEW in phases or Phase.SHIP in phases)
    if differs and vault.is_ancestor(head, base_sha):
        raise InvalidRequest(
            f"branch: {request.branch} has no commit that {base} has not",
            where=request.repository,
            fix="push what you want reviewed or proposed, or name another branch",
        )


def check_lands(config: RepositoryConfig) -> None:
    """InvalidRequest where nothing that is built under these settings could land: before anybody pays for it. A
    repository without a test command is none of these: another item may bring one."""
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


def base_of(vault: Vault, target: Target, request: DeliveryRequest) -> tuple[str, str]:
    """The base branch and its commit, in the vault; of an empty repository our own, not pushed yet."""
    if not target.empty:
        return vault.fetch(request.base, target.heads)
    try:
        name, _ = target.base(request.base)
    except BadInput as error:
        raise InvalidRequest(f"base: {error.what}", where=error.where, fix=error.fix) from None
    return name, make_first(vault.objects)


def title_of(vault: Vault, contract: Contract) -> str:
    """The issue's; where nobody said a word, what the branch's newest commit says of itself, merges aside."""
    if contract.issue is not None:
        return contract.issue.title
    if contract.request.strip() or not contract.existing:
        return ""
    log = ("log", "-1", "--format=%s")
    said: str = vault.git.text(*log, "--no-merges", "--end-of-options", contract.head, f"^{contract.base_sha}")
    said = said or vault.git.text(*log, "--end-of-options", contract.head)
    return " ".join(said.split())[:200]


def tokens_of(asked: int, most: int | None) -> int:
    """The tokens that a retry may use, 0 for no limit: `most` is the host's."""
    return min((limit for limit in (asked, most) if limit), default=0)


_ALLOW = "local_repositories in the user file, or PERDURE_LOCAL_REPOSITORIES, allows directories (docs/submitting.md)"


def comes_from_here(home: Home, delivery: str, request: DeliveryRequest, workflow_id: str = "") -> bool:
    """True when whoever wrote the request knows this home's key. Everybody who reaches Temporal can write one.

    workflow_id  by which what a schedule has started is known
    """
    said = request.model_dump(mode="json", exclude_defaults=True)
    return any(proves(request.proof, home.key(), id, said) for id in (delivery, workflow_id))


def find_target(request: DeliveryRequest, ours: bool, allowed: Sequence[str], keys: Keyring) -> Target:
    """The repository of a request. InvalidRequest for one on this host that is neither ours to name nor allowed.

    BadInput and ForgeUnavailable as `locate` raises them.
    `ours`: the request comes from here. `allowed`: directories in which repositories may be named by anybody.
    """
    if ours:
        return locate(request.repository, Path.cwd(), keys)
    _check_allowed(place_on_host(request.repository), allowed)  # before anything there is looked at
    target = locate(request.repository, ELSEWHERE, keys)
    _check_allowed(place_on_host(target.url), allowed)  # a checkout there may have its origin anywhere
    return target


def find_source(request: DeliveryRequest, ours: bool, target: Target, needed: bool) -> str:
    """The submitter's checkout, empty without one. `needed`: something shall be copied from it.

    InvalidRequest when something is, and the request does not come from here, or names no checkout of the repository.
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
    if path is None:
        return
    real = os.path.realpath(path)
    inside = (Path(real).is_relative_to(os.path.realpath(os.path.expanduser(place))) for place in allowed)
    if not path.is_absolute() or "%" in str(path) or not any(inside):
        raise InvalidRequest(
            "repository: a path of the worker's host counts only in requests that come from its PERDURE_HOME",
            where=str(path)[:200],
            fix=f"submit with perdure deliver there, or name a URL; {_ALLOW}",
        )

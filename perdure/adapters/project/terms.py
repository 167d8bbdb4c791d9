"""What a delivery's terms say of its branch: names made from what was asked for, and whether it is one to work on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.adapters.git.vault import Vault
from perdure.models.contract import Contract
from perdure.models.errors import InvalidRequest
from perdure.models.ids import slug
from perdure.models.issue import Issue
from perdure.models.phases import Phase
from perdure.models.policy import NAME_CHARS
from perdure.models.request import DeliveryRequest


def branch_of(template: str, delivery: str, request: DeliveryRequest, issue: Issue | None, where: str) -> str:
    """`[git] branch`: {id} is the delivery, {slug} the first words of the request or of the issue's title, {issue} its
    number, empty without one. InvalidRequest for any other place."""
    words = request.request if request.request.strip() or issue is None else issue.title
    number = str(issue.number) if issue is not None else ""
    places = {"{id}": delivery, "{slug}": slug(words), "{issue}": number}
    parts = re.split(r"(\{[a-z]+\})", template)  # not str.format: a width in it would be obeyed
    if any(("{" in part or "}" in part) and part not in places for part in parts):
        raise InvalidRequest(
            f"git.branch: {template[:NAME_CHARS]!r} has a place that is not known here",
            where=where,
            fix="use {id}, {slug} and {issue}",
        )
    name = "".join(places.get(part, part) for part in parts)
    if len(name) > NAME_CHARS:
        what = f"git.branch: makes a name of {len(name)} characters, at most {NAME_CHARS} fit"
        raise InvalidRequest(what, where=where, fix="shorten it")
    return name


def check_branch(
    vault: Vault, request: DeliveryRequest, phases: Sequence[str], base: str, base_sha: str, head: str
) -> None:
    """InvalidRequest unless an existing branch is another than the base, with something on it where these phases are
    about what differs. `head`: its tip."""
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

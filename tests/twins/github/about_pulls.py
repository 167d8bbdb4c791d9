"""Pull requests: listed, opened, changed, merged."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.twins.github import discussed, refs
from tests.twins.github.about_issues import check_text, check_title, edit
from tests.twins.github.answers import Problem, Reply, invalid, must_be_admin, plain_invalid
from tests.twins.github.call import Call
from tests.twins.github.state import Person, Pull, Repository, World, now

_CLOSES = re.compile(
    r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+(?:(?P<repository>[\w.-]+/[\w.-]+))?#(?P<number>\d+)\b", re.I
)
_CODE = re.compile(r"<!--.*?-->|```.*?```|~~~.*?~~~|`[^`\n]*`", re.DOTALL)
_RESOURCE = "PullRequest"


def get(call: Call) -> Reply:
    return Reply(200, discussed.pull(call.world, call.where, call.pull(), call.actor))


def list_(call: Call) -> Reply:
    """With GitHub's own defaults: open ones, newest first."""
    found = sorted(call.where.pulls, key=lambda pull: pull.number)
    found = found[:-1] if call.stale else found
    for pull in found:
        discussed.refresh(call.where, pull)
    state, head, base = (call.query.get(name) for name in ("state", "head", "base"))
    if (state or "open") != "all":
        found = [pull for pull in found if pull.state == (state or "open")]
    if head is not None:
        found = [pull for pull in found if _label(call.where, pull).lower() == str(head).lower()]
    if base is not None:
        found = [pull for pull in found if pull.base == base]
    sort = call.query.get("sort", "created")
    if sort != "created":
        keys: dict[str, Callable[[Pull], Any]] = {
            "updated": lambda p: p.updated,
            "popularity": lambda p: len(p.comments),
        }
        found.sort(key=keys.get(sort, lambda p: p.created))
    if call.query.get("direction", "desc" if sort == "created" else "asc") == "desc":
        found.reverse()
    return call.page([discussed.pull(call.world, call.where, pull, call.actor, full=False) for pull in found])


def create(call: Call) -> Reply:
    wanted, here = call.body, call.where
    if "issue" in wanted or "head_repo" in wanted:
        raise plain_invalid("the twin opens no pull request from an issue or another repository of the same owner")
    source, head = _head(call, wanted["head"])
    base, base_sha = wanted["base"], refs.tip(here.path, wanted["base"])
    head_sha = refs.tip(source.path, head)
    problems = [name for name, sha in (("head", head_sha), ("base", base_sha)) if sha is None]
    if problems:
        errors = [{"resource": _RESOURCE, "field": name, "code": "invalid"} for name in problems]
        raise Problem(422, "Validation Failed", errors=errors)
    assert head_sha is not None
    assert base_sha is not None
    title = check_title(_RESOURCE, wanted.get("title", ""))
    body = check_text(_RESOURCE, wanted.get("body", ""), empty=True)
    if wanted.get("draft") and not here.drafts:
        raise plain_invalid("Draft pull requests are not supported in this repository.")
    if not call.may("write") and not source.may(call.who, "write"):
        raise invalid(_RESOURCE, code="custom", message="must be a collaborator")
    label = f"{source.owner.login}:{head}"
    if _open_one(here, source, head, base) is not None:
        raise invalid(_RESOURCE, code="custom", message=f"A pull request already exists for {label}.")
    pull = Pull(
        *(call.world.new_id(), here.next_number(), title, body or None, call.who),
        head=head,
        base=base,
        head_repository=source,
        head_sha=head_sha,
        base_sha=base_sha,
        draft=wanted.get("draft", False),
        maintainer_can_modify=source is not here and wanted.get("maintainer_can_modify", True),
    )
    if head_sha == base_sha and source is here and head == base:
        raise _nothing(base, head)
    refs.remember_pull(here.path, source.path, pull.number, head_sha)
    compared = refs.compare(here.path, base_sha, head_sha)
    if not compared.commits:
        raise _nothing(base, head if source is here else label)
    if not compared.related:
        raise invalid(_RESOURCE, code="custom", message=f"The {head} branch has no history in common with {base}")
    here.issues[pull.number] = pull
    shown = discussed.pull(call.world, here, pull, call.actor)
    return Reply(201, shown, {"Location": shown["url"]})


def update(call: Call) -> Reply:
    pull, wanted, here = call.pull(), call.body or {}, call.where
    discussed.refresh(here, pull)
    if pull.author != call.who and not call.may("write"):
        raise must_be_admin()
    base = wanted.get("base", pull.base)
    if base != pull.base:
        if pull.state != "open":
            raise invalid(_RESOURCE, "base", "invalid", "Cannot change the base branch of a closed pull request.")
        if refs.tip(here.path, base) is None:
            raise invalid(_RESOURCE, "base", "invalid", f"Proposed base branch '{base}' was not found")
        _must_be_free(here, pull, base)
        pull.base = base
        pull.touch()
    edit(pull, wanted, _RESOURCE)
    pull.maintainer_can_modify = wanted.get("maintainer_can_modify", pull.maintainer_can_modify)
    state = wanted.get("state", pull.state)
    if state == "closed" and pull.state == "open":
        pull.close(call.who, None)
    elif state == "open" and pull.state == "closed":
        if pull.merged:
            raise invalid(_RESOURCE, "state", "invalid", "Cannot reopen a merged pull request.")
        source = pull.head_repository or here
        if refs.tip(source.path, pull.head) is None:
            raise invalid(_RESOURCE, "state", "invalid", f"The {pull.head} branch has been deleted.")
        _must_be_free(here, pull, pull.base)
        pull.reopen()
    return Reply(200, discussed.pull(call.world, here, pull, call.actor))


def merge_pull(
    world: World, it: Repository, pull: Pull, who: Person, *, squash: bool = False, message: str = ""
) -> str:
    """Really merge it, and close what its body closes when it went into the default branch; returns the new commit.
    Problem 405 when it cannot be merged."""
    discussed.refresh(it, pull)
    if pull.state != "open" or pull.draft:
        raise Problem(405, "Pull Request is still a draft" if pull.draft else "Pull Request is not mergeable")
    source = pull.head_repository or it
    said = f"Merge pull request #{pull.number} from {source.owner.login}/{pull.head}\n\n{pull.title}"
    said = message or (f"{pull.title} (#{pull.number})" if squash else said)
    sha = refs.merge(it.path, pull.base, pull.head_sha, squash=squash, message=said, who=who.login)
    if sha is None:
        raise Problem(405, "Pull Request is not mergeable")
    pull.close(who, None)
    pull.merged, pull.merged_by, pull.merge_sha = now(), who, sha
    if pull.base == refs.default_branch(it.path):
        for where, number in closes(pull.body or "", it.full_name):
            there = world.repository(where)
            found = there.issues.get(number) if there is not None else None
            if found is not None and not isinstance(found, Pull) and found.state == "open":
                found.close(who)
    return sha


def closes(text: str, here: str) -> list[tuple[str, int]]:
    """The issues that a body closes by GitHub's closing words, outside of code and comments."""
    found = _CLOSES.finditer(_CODE.sub(" ", text))
    return [(each["repository"] or here, int(each["number"])) for each in found]


def request_reviewers(call: Call) -> Reply:
    """All that are asked for, or none."""
    pull, wanted, here = call.pull(), call.body or {}, call.where
    people = [call.world.person(login) for login in wanted.get("reviewers", ())]
    teams = list(wanted.get("team_reviewers", ()))
    if pull.author in people:
        raise plain_invalid("Review cannot be requested from pull request author.")
    if not all(here.may(who, "read") for who in people):
        raise plain_invalid("Reviews may only be requested from collaborators. One or more of the users or teams you"
                            f" specified is not a collaborator of the {here.full_name} repository.")  # fmt: skip
    if not set(teams) <= here.teams:
        raise plain_invalid("Could not resolve to a node with the global id of one of the teams you specified.")
    pull.reviewers += [who for who in people if who not in pull.reviewers]
    pull.teams += [team for team in teams if team not in pull.teams]
    pull.touch()
    return Reply(201, discussed.pull(call.world, here, pull, call.actor, full=False))


def _head(call: Call, text: str) -> tuple[Repository, str]:
    """The repository and branch that `branch` or `owner:branch` means: this one, or a fork of it."""
    owner, colon, branch = text.rpartition(":")
    if not colon or owner.lower() == call.where.owner.login.lower():
        return call.where, branch
    for each in call.world.repositories:
        if each.owner.login.lower() == owner.lower() and each.parent is call.where:
            return each, branch
    raise invalid(_RESOURCE, "head", "invalid")


def _open_one(here: Repository, source: Repository, head: str, base: str) -> Pull | None:
    for pull in here.pulls:
        discussed.refresh(here, pull)
        if (pull.state, pull.head_repository, pull.head, pull.base) == ("open", source, head, base):
            return pull
    return None


def _must_be_free(here: Repository, pull: Pull, base: str) -> None:
    source = pull.head_repository or here
    if _open_one(here, source, pull.head, base) not in (None, pull):
        said = f"A pull request already exists for base branch '{base}' and head branch '{pull.head}'"
        raise invalid(_RESOURCE, "base", "invalid", said)


def _nothing(base: str, head: str) -> Problem:
    return invalid(_RESOURCE, code="custom", message=f"No commits between {base} and {head}")


def _label(here: Repository, pull: Pull) -> str:
    return f"{(pull.head_repository or here).owner.login}:{pull.head}"

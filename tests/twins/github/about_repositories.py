"""Repositories, branches, the account itself, Apps and their tokens."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.twins.github import refs, shapes
from tests.twins.github.access import App, Kind
from tests.twins.github.answers import Problem, Reply, not_found, plain_invalid
from tests.twins.github.call import Call
from tests.twins.github.description import Json
from tests.twins.github.state import Repository


def get(call: Call) -> Reply:
    return Reply(200, shapes.repository(call.world, call.where, call.actor, full=True))


def get_branch(call: Call) -> Reply:
    name = call.path["branch"]
    return Reply(200, shapes.branch(call.world, call.where, name, _tip(call, name)))


def _tip(call: Call, name: str) -> str:
    sha = refs.tip(call.where.path, name)
    if sha is None:
        raise Problem(404, "Branch not found")
    return sha


def me(call: Call) -> Reply:
    if call.actor is None:
        raise Problem(401, "Requires authentication")
    if call.actor.kind is Kind.INSTALLATION:
        raise Problem(403, "Resource not accessible by integration")
    return Reply(200, shapes.account(call.world, call.who))


def app(call: Call) -> Reply:
    return Reply(200, shapes.app(call.world, _app(call)))


def installation(call: Call) -> Reply:
    it = _app(call)
    if call.where.full_name.lower() not in it.repositories:
        raise not_found()
    return Reply(200, shapes.installation(call.world, it, call.where))


def access_token(call: Call) -> Reply:
    """A token for some or all of the repositories, with some or all of the permissions."""
    it, wanted = _app(call), call.body or {}
    if call.path["installation_id"] != it.installation:
        raise not_found()
    if it.suspended:
        raise Problem(403, "This installation has been suspended")
    permissions = {"metadata": "read", **(wanted.get("permissions") or it.permissions)}
    if any(
        {"metadata": "read", **it.permissions}.get(name) not in (level, "write") for name, level in permissions.items()
    ):
        raise plain_invalid("The permissions requested are not granted to this installation.")
    repositories = _chosen(call, it, wanted)
    actor = call.keys.install(it, {each.full_name.lower() for each in repositories}, permissions)
    assert actor.ends is not None
    body: Json = {
        "token": actor.key,
        "expires_at": datetime.fromtimestamp(actor.ends, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "permissions": permissions,
        "repository_selection": "selected",
    }
    if wanted.keys() & {"repositories", "repository_ids"}:
        body["repositories"] = [shapes.repository(call.world, each, actor) for each in repositories]
    return Reply(201, body)


def _chosen(call: Call, it: App, wanted: Json) -> list[Repository]:
    installed = [each for each in call.world.repositories if {each.full_name.lower(), *each.names} & it.repositories]
    names, ids = wanted.get("repositories"), wanted.get("repository_ids")
    if names is None and ids is None:
        return installed
    chosen = [each for each in installed if each.name in (names or ()) or each.id in (ids or ())]
    if len(chosen) < len(names or ()) + len(ids or ()):
        raise plain_invalid("There is at least one repository that does not exist or is not accessible to the parent"
                            " installation.")  # fmt: skip
    return chosen


def _app(call: Call) -> App:
    assert call.actor is not None
    assert call.actor.app is not None
    return call.actor.app

"""Issues, their comments and labels."""

from __future__ import annotations

from typing import Any

from tests.twins.github import discussed, shapes
from tests.twins.github.access import Kind
from tests.twins.github.answers import Problem, Reply, invalid, must_be_admin, not_found
from tests.twins.github.call import Call
from tests.twins.github.state import Comment, Issue, now

TEXT = 65_536
TITLE = 256
_TOO_LONG = f"Body is too long (maximum is {TEXT} characters)"


def get(call: Call) -> Reply:
    return Reply(200, discussed.issue(call.world, call.where, call.issue()))


def list_comments(call: Call) -> Reply:
    """Oldest first; GitHub cannot be asked for another order."""
    thing = call.issue()
    since = call.query.get("since", "")
    shown = [each for each in thing.comments if each.updated >= since]
    shown = shown[:-1] if call.stale else shown
    return call.page([discussed.comment(call.world, call.where, thing, each) for each in shown])


def create_comment(call: Call) -> Reply:
    thing = call.issue()
    if thing.locked and not call.may("triage"):
        raise Problem(403, "Unable to create comment because issue is locked.")
    app = call.actor.app.slug if call.actor is not None and call.actor.app is not None else None
    made = Comment(call.world.new_id(), call.who, check_text("IssueComment", call.body["body"]), app)
    thing.comments.append(made)
    thing.touch()
    shown = discussed.comment(call.world, call.where, thing, made)
    return Reply(201, shown, {"Location": shown["url"]})


def update_comment(call: Call) -> Reply:
    thing, comment = _own(call)
    comment.body, comment.updated = check_text("IssueComment", call.body["body"]), now()
    return Reply(200, discussed.comment(call.world, call.where, thing, comment))


def delete_comment(call: Call) -> Reply:
    thing, comment = _own(call)
    thing.comments.remove(comment)
    thing.touch()
    return Reply(204)


def add_labels(call: Call) -> Reply:
    thing = call.issue()
    given = call.body.get("labels", []) if isinstance(call.body, dict) else call.body
    add(call, thing, [each if isinstance(each, str) else each["name"] for each in given or []])
    return Reply(200, [shapes.label(call.world, call.where, each) for each in thing.labels])


def edit(thing: Issue, wanted: dict[str, Any], resource: str) -> None:
    """Title and body."""
    if "title" in wanted:
        thing.title = check_title(resource, str(wanted["title"] or ""))
    if "body" in wanted:
        thing.body = check_text(resource, wanted["body"] or "", empty=True) or None
    if wanted.keys() & {"title", "body"}:
        thing.touch()


def add(call: Call, thing: Issue, names: list[str]) -> None:
    """Labels that it does not have yet, in one go or not at all."""
    for name in names:
        if not name.strip() or len(name) > 50 or "," in name:
            raise invalid("Label", "name", "invalid", value=name)
        new = name.lower() not in call.where.labels
        if new and call.actor is not None and call.actor.kind is Kind.CLASSIC and not call.may("write"):
            raise Problem(403, "You do not have permission to create labels on this repository.")
    for name in names:
        label = call.world.label(call.where, name)
        if label not in thing.labels:
            thing.labels.append(label)
            thing.touch()


def check_title(resource: str, title: str) -> str:
    if not title.strip():
        raise invalid(resource, "title", "missing_field")
    if len(title) > TITLE:
        raise invalid(resource, "title", "custom", f"title is too long (maximum is {TITLE} characters)")
    return title.strip()


def check_text(resource: str, text: str, *, empty: bool = False) -> str:
    if not text.strip() and not empty:
        raise invalid(resource, "body", "missing_field", "Body can't be blank")
    if len(text) > TEXT:
        raise invalid(resource, "body", "unprocessable", _TOO_LONG)
    return text


def _own(call: Call) -> tuple[Issue, Comment]:
    """A comment that the one who asks may change."""
    thing, comment = _comment(call)
    app = call.actor is not None and call.actor.kind is Kind.INSTALLATION
    if comment.author != call.who and (app or not call.may("write")):
        raise must_be_admin() if not app else Problem(403, "Resource not accessible by integration")
    return thing, comment


def _comment(call: Call) -> tuple[Issue, Comment]:
    for thing, comment in call.world.comments(call.where):
        if comment.id == call.path["comment_id"]:
            return thing, comment
    raise not_found()

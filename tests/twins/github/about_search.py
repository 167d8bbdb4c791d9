"""The search for issues, as far as its words are known here: repo, is, label, milestone, and words of the title."""

from __future__ import annotations

import re
from typing import Any

from tests.twins.github import discussed
from tests.twins.github.answers import Reply, invalid
from tests.twins.github.call import PER_PAGE, Call
from tests.twins.github.rights import sees
from tests.twins.github.state import Issue, Pull, Repository

_TERM = re.compile(r'(?:(\w+):)?(?:"([^"]*)"|(\S+))')


def search(call: Call) -> Reply:
    """Everything that fits, of every repository that is named and may be seen."""
    terms = [
        (found[1] or "", found[2] if found[2] is not None else found[3]) for found in _TERM.finditer(call.query["q"])
    ]
    named = [words for kind, words in terms if kind == "repo"]
    known = {"", "repo", "is", "label", "milestone"}
    there = [it for name in named if (it := call.world.repository(name)) is not None and sees(call.actor, it)]
    if not there or any(kind not in known for kind, _ in terms):
        raise invalid("Search", "q", "invalid")
    found = [
        (it, issue) for it in there for issue in it.issues.values() if not issue.deleted and _fits(it, issue, terms)
    ]
    items = [_found(discussed.issue(call.world, it, issue)) for it, issue in found]
    size, number = call.query.get("per_page", PER_PAGE), call.query.get("page", 1)
    shown = items[(number - 1) * size : number * size]
    body = {"total_count": len(items), "incomplete_results": call.stale, "items": shown, "search_type": "lexical"}
    return Reply(200, body)


def _found(issue: dict[str, Any]) -> dict[str, Any]:
    """As a search shows it: with a score, without who closed it, and with a text that may be empty."""
    shown = {name: value for name, value in issue.items() if name != "closed_by"}
    return shown | {"score": 1.0, "body": issue["body"] or ""}


def _fits(it: Repository, issue: Issue, terms: list[tuple[str, str]]) -> bool:
    return all(_holds(issue, kind, words) for kind, words in terms)


def _holds(issue: Issue, kind: str, words: str) -> bool:
    match kind, words:
        case "is", "issue":
            return not isinstance(issue, Pull)
        case "is", state:
            return issue.state == state
        case "label", name:
            return name.lower() in [label.name.lower() for label in issue.labels]
        case "milestone", name:
            return issue.milestone == name
        case "", text:
            return text.lower() in f"{issue.title} {issue.body or ''}".lower()
    return True

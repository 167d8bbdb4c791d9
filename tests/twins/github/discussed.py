"""Issues, pull requests and comments as the API shows them."""

from __future__ import annotations

from typing import Any

from tests.twins.github import refs, shapes
from tests.twins.github.access import Actor, Kind
from tests.twins.github.state import Comment, Issue, Pull, Repository, World

Json = dict[str, Any]


def refresh(it: Repository, pull: Pull) -> None:
    """See what has been pushed: an open pull request follows its branches, and is closed when its head is gone."""
    if pull.state != "open":
        return
    source = pull.head_repository or it
    head, base = refs.tip(source.path, pull.head), refs.tip(it.path, pull.base)
    if head is None or base is None:
        pull.close(None, None)
        return
    if head != pull.head_sha:
        refs.remember_pull(it.path, source.path, pull.number, head)
        pull.head_sha = head
        pull.touch()
    pull.base_sha = base


def page(world: World, it: Repository, thing: Issue) -> str:
    """The web address."""
    kind = "pull" if isinstance(thing, Pull) else "issues"
    return f"{world.url}/{it.full_name}/{kind}/{thing.number}"


def comment(world: World, it: Repository, thing: Issue, what: Comment) -> Json:
    url = f"{world.api}/repos/{it.full_name}/issues"
    return {
        "url": f"{url}/comments/{what.id}",
        "html_url": f"{page(world, it, thing)}#issuecomment-{what.id}",
        "issue_url": f"{url}/{thing.number}",
        "id": what.id,
        "node_id": shapes.node("IssueComment", what.id),
        "user": shapes.person(world, what.author),
        "created_at": what.created,
        "updated_at": what.updated,
        "author_association": shapes.association(it, what.author),
        "body": what.body,
        "performed_via_github_app": None,
    }


def issue(world: World, it: Repository, thing: Issue) -> Json:
    """An issue, or a pull request as the issue that it also is."""
    url, web = f"{world.api}/repos/{it.full_name}/issues/{thing.number}", page(world, it, thing)
    found: Json = {
        **_common(world, it, thing),
        "url": url,
        "repository_url": f"{world.api}/repos/{it.full_name}",
        "labels_url": f"{url}/labels{{/name}}",
        "comments_url": f"{url}/comments",
        "events_url": f"{url}/events",
        "timeline_url": f"{url}/timeline",
        "html_url": web,
        "comments": len(thing.comments),
        "state_reason": thing.state_reason,
        "closed_by": shapes.person(world, thing.closed_by) if thing.closed_by else None,
        "performed_via_github_app": None,
    }
    if isinstance(thing, Pull):
        pulls = f"{world.api}/repos/{it.full_name}/pulls/{thing.number}"
        found["draft"] = thing.draft
        found["pull_request"] = {
            "url": pulls,
            "html_url": web,
            "diff_url": f"{web}.diff",
            "patch_url": f"{web}.patch",
            "merged_at": thing.merged,
        }
    return found


def pull(world: World, it: Repository, thing: Pull, actor: Actor | None, *, full: bool = True) -> Json:
    """Alone with all it has, or as one of a list."""
    refresh(it, thing)
    api, web = f"{world.api}/repos/{it.full_name}", page(world, it, thing)
    url, issues = f"{api}/pulls/{thing.number}", f"{api}/issues/{thing.number}"
    links = {
        "self": url,
        "html": web,
        "issue": issues,
        "comments": f"{issues}/comments",
        "review_comments": f"{url}/comments",
        "review_comment": f"{api}/pulls/comments{{/number}}",
        "commits": f"{url}/commits",
        "statuses": f"{api}/statuses/{thing.head_sha}",
    }
    found: Json = {
        **_common(world, it, thing),
        "url": url,
        "html_url": web,
        "diff_url": f"{web}.diff",
        "patch_url": f"{web}.patch",
        "issue_url": issues,
        **{f"{name}_url": address for name, address in links.items() if name not in ("self", "html", "issue")},
        "merged_at": thing.merged,
        "merge_commit_sha": thing.merge_sha,
        "requested_reviewers": [shapes.person(world, who) for who in thing.reviewers],
        "requested_teams": [_team(world, it, name) for name in thing.teams],
        "head": _side(world, thing.head_repository or it, thing.head, thing.head_sha, actor),
        "base": _side(world, it, thing.base, thing.base_sha, actor),
        "_links": {name: {"href": address} for name, address in links.items()},
        "auto_merge": None,
        "draft": thing.draft,
    }
    return found | _more(world, it, thing) if full else found


def _more(world: World, it: Repository, thing: Pull) -> Json:
    compared = refs.compare(it.path, thing.base_sha, thing.head_sha)
    state = ("draft" if thing.draft else "clean") if compared.mergeable else "dirty"
    return {
        "merged": thing.merged is not None,
        "mergeable": compared.mergeable if thing.state == "open" else None,
        "rebaseable": compared.mergeable if thing.state == "open" else None,
        "mergeable_state": state if thing.state == "open" else "unknown",
        "merged_by": shapes.person(world, thing.merged_by) if thing.merged_by else None,
        "comments": len(thing.comments),
        "review_comments": 0,
        "maintainer_can_modify": thing.maintainer_can_modify,
        "commits": compared.commits,
        "additions": compared.additions,
        "deletions": compared.deletions,
        "changed_files": len(compared.files),
    }


def _common(world: World, it: Repository, thing: Issue) -> Json:
    kind = "PullRequest" if isinstance(thing, Pull) else "Issue"
    assignees = [shapes.person(world, who) for who in thing.assignees]
    return {
        "id": thing.id,
        "node_id": shapes.node(kind, thing.id),
        "number": thing.number,
        "state": thing.state,
        "locked": thing.locked,
        "active_lock_reason": None,
        "title": thing.title,
        "body": thing.body,
        "user": shapes.person(world, thing.author),
        "labels": [shapes.label(world, it, label) for label in thing.labels],
        "milestone": None,
        "assignee": assignees[0] if assignees else None,
        "assignees": assignees,
        "author_association": shapes.association(it, thing.author),
        "created_at": thing.created,
        "updated_at": thing.updated,
        "closed_at": thing.closed,
    }


def _side(world: World, it: Repository, branch: str, sha: str, actor: Actor | None) -> Json:
    return {
        "label": f"{it.owner.login}:{branch}",
        "ref": branch,
        "sha": sha,
        "user": shapes.person(world, it.owner),
        "repo": shapes.repository(world, it, actor if actor is None or actor.kind is not Kind.APP else None),
    }


def _team(world: World, it: Repository, slug: str) -> Json:
    url = f"{world.api}/orgs/{it.owner.login}/teams/{slug}"
    return {
        "id": 1,
        "node_id": shapes.node("Team", 1),
        "url": url,
        "html_url": f"{world.url}/orgs/{it.owner.login}/teams/{slug}",
        "members_url": f"{url}/members{{/member}}",
        "repositories_url": f"{url}/repos",
        "name": slug,
        "slug": slug,
        "description": None,
        "permission": "push",
        "parent": None,
        "type": "organization",
    }

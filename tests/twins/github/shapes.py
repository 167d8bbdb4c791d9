"""People, repositories, branches and labels as the API shows them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from tests.twins.github import refs
from tests.twins.github.access import Actor, App, Kind
from tests.twins.github.state import LEVELS, Label, Person, Pull, Repository, World, now

Json = dict[str, Any]

_OF_PEOPLE = {
    "followers_url": "/followers",
    "following_url": "/following{/other_user}",
    "gists_url": "/gists{/gist_id}",
    "starred_url": "/starred{/owner}{/repo}",
    "subscriptions_url": "/subscriptions",
    "organizations_url": "/orgs",
    "repos_url": "/repos",
    "events_url": "/events{/privacy}",
    "received_events_url": "/received_events",
}
_OF_REPOSITORIES = {
    "archive_url": "/{archive_format}{/ref}",
    "assignees_url": "/assignees{/user}",
    "blobs_url": "/git/blobs{/sha}",
    "branches_url": "/branches{/branch}",
    "collaborators_url": "/collaborators{/collaborator}",
    "comments_url": "/comments{/number}",
    "commits_url": "/commits{/sha}",
    "compare_url": "/compare/{base}...{head}",
    "contents_url": "/contents/{+path}",
    "contributors_url": "/contributors",
    "deployments_url": "/deployments",
    "downloads_url": "/downloads",
    "events_url": "/events",
    "forks_url": "/forks",
    "git_commits_url": "/git/commits{/sha}",
    "git_refs_url": "/git/refs{/sha}",
    "git_tags_url": "/git/tags{/sha}",
    "hooks_url": "/hooks",
    "issue_comment_url": "/issues/comments{/number}",
    "issue_events_url": "/issues/events{/number}",
    "issues_url": "/issues{/number}",
    "keys_url": "/keys{/key_id}",
    "labels_url": "/labels{/name}",
    "languages_url": "/languages",
    "merges_url": "/merges",
    "milestones_url": "/milestones{/number}",
    "notifications_url": "/notifications{?since,all,participating}",
    "pulls_url": "/pulls{/number}",
    "releases_url": "/releases{/id}",
    "stargazers_url": "/stargazers",
    "statuses_url": "/statuses/{sha}",
    "subscribers_url": "/subscribers",
    "subscription_url": "/subscription",
    "tags_url": "/tags",
    "teams_url": "/teams",
    "trees_url": "/git/trees{/sha}",
}
_NOBODY_LOOKED = ("forks", "forks_count", "stargazers_count", "watchers", "watchers_count")


def node(kind: str, number: int) -> str:
    return base64.b64encode(f"{len(kind):03}:{kind}{number}".encode()).decode()


def person(world: World, who: Person) -> Json:
    url = f"{world.api}/users/{who.login}"
    return {
        "login": who.login,
        "id": who.id,
        "node_id": node("User", who.id),
        "avatar_url": f"{world.url}/avatars/u/{who.id}",
        "gravatar_id": "",
        "url": url,
        "html_url": f"{world.url}/{who.login}",
        **{name: url + end for name, end in _OF_PEOPLE.items()},
        "type": who.kind,
        "site_admin": False,
    }


def account(world: World, who: Person) -> Json:
    """A person as they see themselves."""
    nothing: Json = dict.fromkeys(("name", "company", "location", "email", "hireable", "bio"))
    counts = ("public_repos", "public_gists", "followers", "following", "private_gists", "total_private_repos")
    more = dict.fromkeys((*counts, "owned_private_repos", "disk_usage", "collaborators"), 0)
    dates = {"created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z"}
    return {
        **person(world, who),
        "user_view_type": "private",
        **nothing,
        "blog": "",
        **more,
        **dates,
        "two_factor_authentication": True,
    }


def repository(world: World, it: Repository, actor: Actor | None, *, full: bool = False) -> Json:
    """`full`: alone, and not inside something else."""
    url = f"{world.api}/repos/{it.full_name}"
    web = f"{world.url}/{it.full_name}"
    host = world.url.partition("://")[2].partition(":")[0]
    waiting = sum(issue.state == "open" and not issue.deleted and not issue.moved for issue in it.issues.values())
    found: Json = {
        "id": it.id,
        "node_id": node("Repository", it.id),
        "name": it.name,
        "full_name": it.full_name,
        "private": it.private,
        "owner": person(world, it.owner),
        "html_url": web,
        "description": None,
        "fork": it.parent is not None,
        "url": url,
        **{name: url + end for name, end in _OF_REPOSITORIES.items()},
        "git_url": f"git://{host}/{it.full_name}.git",
        "ssh_url": f"git@{host}:{it.full_name}.git",
        "clone_url": f"{web}.git",
        "svn_url": web,
        "mirror_url": None,
        "homepage": None,
        "language": None,
        "license": None,
        **dict.fromkeys(_NOBODY_LOOKED, 0),
        "size": 1,
        "default_branch": refs.default_branch(it.path),
        "open_issues": waiting,
        "open_issues_count": waiting,
        "is_template": False,
        "topics": [],
        "has_issues": it.has_issues,
        "has_projects": False,
        "has_wiki": False,
        "has_pages": False,
        "has_downloads": False,
        "has_discussions": False,
        "archived": it.archived,
        "disabled": False,
        "visibility": "private" if it.private else "public",
        "allow_forking": True,
        "web_commit_signoff_required": False,
        "pushed_at": now(),
        "created_at": it.created,
        "updated_at": it.created,
    }
    if full:
        found |= {"network_count": 0, "subscribers_count": 0}
        if it.owner.kind == "Organization":
            found["organization"] = person(world, it.owner)
        if it.parent is not None:
            found["parent"] = found["source"] = repository(world, it.parent, actor)
    if actor is not None:
        found["permissions"] = _role(actor, it)
        if full and actor.level(it) in ("write", "maintain", "admin") and actor.kind is not Kind.INSTALLATION:
            found |= {"allow_merge_commit": True, "allow_squash_merge": True, "allow_rebase_merge": False}
            found |= {"allow_auto_merge": False, "delete_branch_on_merge": False, "allow_update_branch": False}
    return found


def _role(actor: Actor, it: Repository) -> Json:
    """The account's role, whatever its token may do; for an App, which has none, everything is false."""
    level = 0 if actor.kind is Kind.INSTALLATION else LEVELS.index(actor.level(it))
    steps = {"pull": "read", "triage": "triage", "push": "write", "maintain": "maintain", "admin": "admin"}
    may = {name: level >= LEVELS.index(needed) for name, needed in steps.items()}
    return {**may, "pull": may["pull"] or not it.private}


def label(world: World, it: Repository, what: Label) -> Json:
    return {
        "id": what.id,
        "node_id": node("Label", what.id),
        "url": f"{world.api}/repos/{it.full_name}/labels/{what.name}".replace(" ", "%20"),
        "name": what.name,
        "color": what.color,
        "default": False,
        "description": "",  # null outside of lists of pull requests, where the description does not allow it
    }


def branch(world: World, it: Repository, name: str, sha: str) -> Json:
    url, protected = f"{world.api}/repos/{it.full_name}/branches/{name}", it.is_protected(name)
    return {
        "name": name,
        "commit": commit(world, it, sha),
        "_links": {"self": url, "html": f"{world.url}/{it.full_name}/tree/{name}"},
        "protected": protected,
        "protection": {"enabled": protected},
        "protection_url": f"{url}/protection",
    }


def commit(world: World, it: Repository, sha: str) -> Json:
    url, web = f"{world.api}/repos/{it.full_name}", f"{world.url}/{it.full_name}"
    tree, name, email, when, message = refs.subject(it.path, sha)
    date = datetime.fromtimestamp(int(when), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    author = {"name": name, "email": email, "date": date}
    return {
        "sha": sha,
        "node_id": node("Commit", int(sha[:8], 16)),
        "url": f"{url}/commits/{sha}",
        "html_url": f"{web}/commit/{sha}",
        "comments_url": f"{url}/commits/{sha}/comments",
        "commit": {
            "url": f"{url}/git/commits/{sha}",
            "author": author,
            "committer": author,
            "message": message,
            "comment_count": 0,
            "tree": {"sha": tree, "url": f"{url}/git/trees/{tree}"},
        },
        "author": None,
        "committer": None,
        "parents": [
            {"sha": each, "url": f"{url}/commits/{each}", "html_url": f"{web}/commit/{each}"}
            for each in refs.parents(it.path, sha)
        ],
    }


def app(world: World, it: App) -> Json:
    return {
        "id": it.id,
        "slug": it.slug,
        "node_id": node("App", it.id),
        "owner": person(world, it.owner),
        "name": it.slug,
        "description": None,
        "external_url": world.url,
        "html_url": f"{world.url}/apps/{it.slug}",
        "created_at": "2020-01-01T00:00:00Z",
        "updated_at": "2020-01-01T00:00:00Z",
        "permissions": it.permissions,
        "events": [],
        "installations_count": 1,
    }


def installation(world: World, it: App, where: Repository) -> Json:
    return {
        "id": it.installation,
        "account": person(world, where.owner),
        "repository_selection": "selected",
        "access_tokens_url": f"{world.api}/app/installations/{it.installation}/access_tokens",
        "repositories_url": f"{world.api}/installation/repositories",
        "html_url": f"{world.url}/settings/installations/{it.installation}",
        "app_id": it.id,
        "app_slug": it.slug,
        "target_id": where.owner.id,
        "target_type": where.owner.kind,
        "permissions": it.permissions,
        "events": [],
        "created_at": "2020-01-01T00:00:00Z",
        "updated_at": "2020-01-01T00:00:00Z",
        "single_file_name": None,
        "suspended_by": None,
        "suspended_at": now() if it.suspended else None,
    }


def association(it: Repository, who: Person, actor_level: str = "none") -> str:
    if who == it.owner:
        return "OWNER"
    if it.people.get(who.login.lower()):
        return "COLLABORATOR"
    merged = any(isinstance(pull, Pull) and pull.merged and pull.author == who for pull in it.issues.values())
    return "CONTRIBUTOR" if merged else "NONE"

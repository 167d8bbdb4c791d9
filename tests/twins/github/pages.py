"""Pages for people: an issue, a pull request. Only what is public; there is nothing to sign in to."""

from __future__ import annotations

from aiohttp import web

from tests.twins.github import discussed, refs
from tests.twins.github.html import POLICY, escape, label, markdown, state, whole
from tests.twins.github.state import Comment, Issue, Pull, Repository, World

DIFF_LINES = 400


class Pages:
    """`/OWNER/NAME/issues/N`, `/OWNER/NAME/pull/N`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get(r"/{owner}/{name}/{kind:issues|pull}/{number:\d+}", self._discussed)
        app.router.add_get("/{path:.*}", self._nothing)

    async def _discussed(self, request: web.Request) -> web.Response:
        with self._world.lock:
            it = self._visible(request)
            thing = it.issues.get(int(request.match_info["number"]))
            if thing is None or thing.deleted:
                return await self._nothing(request)
            if thing.moved is not None:
                there, number = thing.moved
                raise web.HTTPFound(f"/{there.full_name}/issues/{number}")
            kind = "pull" if isinstance(thing, Pull) else "issues"
            if kind != request.match_info["kind"]:
                raise web.HTTPFound(f"/{it.full_name}/{kind}/{thing.number}")
            if isinstance(thing, Pull):
                discussed.refresh(it, thing)
            return _page(f"{thing.title} · #{thing.number}", _head(it) + _thing(it, thing))

    async def _nothing(self, request: web.Request) -> web.Response:
        return _page("Page not found", "<h1>404</h1><p>This is not the page you are looking for.</p>", status=404)

    def _visible(self, request: web.Request) -> Repository:
        """As it is called now. HTTPException with a redirect or a 404."""
        name = f"{request.match_info['owner']}/{request.match_info['name'].removesuffix('.git')}"
        it = self._world.repository(name)
        if it is None or it.private:
            raise web.HTTPNotFound(text="Not Found")
        if it.full_name.lower() != f"{request.match_info['owner']}/{request.match_info['name']}".lower():
            rest = "/".join(request.path.split("/")[3:])
            raise web.HTTPMovedPermanently(f"/{it.full_name}" + (f"/{rest}" if rest else ""))
        return it


def _page(title: str, content: str, status: int = 200) -> web.Response:
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
    return web.Response(status=status, text=whole(title, content), content_type="text/html", headers=headers)


def _head(it: Repository) -> str:
    notes = " <em>archived</em>" if it.archived else ""
    return f"<nav>{escape(it.full_name)}{notes}</nav>"


def _state(thing: Issue) -> tuple[str, str]:
    """The word, and the class that colours it."""
    if isinstance(thing, Pull) and thing.merged:
        return "Merged", "merged"
    if thing.state == "closed":
        return "Closed", "closed" if isinstance(thing, Pull) else "merged"
    return ("Draft", "draft") if isinstance(thing, Pull) and thing.draft else ("Open", "open")


def _thing(it: Repository, thing: Issue) -> str:
    locked = " <em>locked: only collaborators may comment</em>" if thing.locked else ""
    labels = "".join(label(each.name) for each in thing.labels)
    parts = [
        f"<h1>{escape(thing.title)} <small>#{thing.number}</small></h1>",
        f"<p>{state(*_state(thing))} {_about(thing)} {labels}{locked}</p>",
        _box(it, thing.author.login, thing.created, thing.body or "*No description.*"),
        *(_comment(it, each) for each in thing.comments),
    ]
    return "".join(parts) + (_changes(it, thing) if isinstance(thing, Pull) else "")


def _about(thing: Issue) -> str:
    who = escape(thing.author.login)
    if not isinstance(thing, Pull):
        return f"{who} opened this issue"
    done = f"merged as <code>{(thing.merge_sha or '')[:7]}</code> by" if thing.merged else "wants to merge"
    who = escape(thing.merged_by.login) if thing.merged_by else who
    middle = f"{done} {who}:" if thing.merged else f"{who} {done}"
    asked = [each.login for each in thing.reviewers] + thing.teams
    reviewers = f" · review asked from {escape(', '.join(asked))}" if asked else ""
    return f"{middle} <code>{escape(thing.head)}</code> into <code>{escape(thing.base)}</code>{reviewers}"


def _comment(it: Repository, comment: Comment) -> str:
    return (
        f'<div id="issuecomment-{comment.id}">'
        + _box(it, comment.author.login, comment.created, comment.body)
        + "</div>"
    )


def _box(it: Repository, who: str, when: str, text: str) -> str:
    words = f"<strong>{escape(who)}</strong> <time>{when.replace('T', ' ').removesuffix('Z')} UTC</time>"
    return f"<article><header>{words}</header>{markdown(text, it.full_name)}</article>"


def _changes(it: Repository, pull: Pull) -> str:
    if pull.merged:
        return ""
    compared = refs.compare(it.path, pull.base_sha, pull.head_sha)
    rows = "".join(
        f'<tr><td><code>{escape(path)}</code></td><td class="plus">{"+" + str(added) if added >= 0 else "binary"}</td>'
        f'<td class="minus">{"−" + str(deleted) if deleted >= 0 else ""}</td></tr>'
        for path, added, deleted in compared.files
    )
    lines = refs.patch(it.path, pull.base_sha, pull.head_sha, DIFF_LINES)
    diff = "".join(f'<span class="{_colour(line)}">{escape(line)}\n</span>' for line in lines)
    commits = f"{compared.commits} commit{'' if compared.commits == 1 else 's'}"
    files = f"{len(compared.files)} file{'' if len(compared.files) == 1 else 's'} changed"
    merging = "It can be merged." if compared.mergeable else "It conflicts with its base."
    where = f"Head <code>{pull.head_sha[:7]}</code>, base <code>{pull.base_sha[:7]}</code>."
    return (
        f'<h2>{commits}, {files}, <span class="plus">+{compared.additions}</span> <span class="minus">'
        f"−{compared.deletions}</span></h2><p>{merging if pull.state == 'open' else ''} {where}</p>"
        f"<table>{rows}</table><pre>{diff}</pre>"
    )


def _colour(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ")):
        return "file"
    return {"+": "plus", "-": "minus", "@": "hunk"}.get(line[:1], "same")

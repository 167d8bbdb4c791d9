"""The REST API: a request is held against GitHub's description, allowed, carried out; its reply too."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from aiohttp import web

from perdure.rehearsal.server import reset_connection
from tests.twins.github import (
    about_issues,
    about_pulls,
    about_repositories,
    about_rules,
    about_search,
    description,
    rights,
)
from tests.twins.github.access import Actor, Keys
from tests.twins.github.answers import Problem, Reply, not_found
from tests.twins.github.call import MOST_PER_PAGE, Call, moved
from tests.twins.github.description import Operation
from tests.twins.github.faults import UNICORN, Fault, Faults, Kind, problem
from tests.twins.github.state import Pull, Repository, World

PREFIX = "/api/v3"
VERSIONS = ("2022-11-28", "2026-03-10")
BUDGET = {True: 5000, False: 60}
"""Requests an hour, with a token and without."""

CUT_STATUS = 499
"""In the list of calls, for an answer that nobody got."""

_ACCEPT = re.compile(r"\*/\*|application/\*|application/json|application/vnd\.github[\w.+-]*")
_HOUR = 3600
_HANDLERS: dict[str, Callable[[Call], Reply]] = {
    "apps/create-installation-access-token": about_repositories.access_token,
    "apps/get-authenticated": about_repositories.app,
    "apps/get-repo-installation": about_repositories.installation,
    "issues/add-labels": about_issues.add_labels,
    "issues/create-comment": about_issues.create_comment,
    "issues/delete-comment": about_issues.delete_comment,
    "issues/get": about_issues.get,
    "issues/list-comments": about_issues.list_comments,
    "issues/update-comment": about_issues.update_comment,
    "pulls/create": about_pulls.create,
    "pulls/get": about_pulls.get,
    "pulls/list": about_pulls.list_,
    "pulls/request-reviewers": about_pulls.request_reviewers,
    "pulls/update": about_pulls.update,
    "repos/get": about_repositories.get,
    "repos/get-branch": about_repositories.get_branch,
    "repos/get-branch-rules": about_rules.of_branch,
    "repos/get-repo-ruleset": about_rules.get,
    "search/issues-and-pull-requests": about_search.search,
    "users/get-authenticated": about_repositories.me,
}


class Violation(Exception):
    """A request or a reply that GitHub's description does not allow."""


class Api:
    """`violations` has what did not fit, `log` gets (method, path, operation, status) of every answer."""

    def __init__(
        self, world: World, keys: Keys, faults: Faults, violations: list[str], log: Callable[[str, str, str, int], None]
    ) -> None:
        self._world, self._keys, self._faults = world, keys, faults
        self._violations, self._log = violations, log
        self._used: dict[str, int] = {}
        self._reset = math.ceil(time.time()) + _HOUR
        self._requests = 0

    async def handle(self, http: web.Request) -> web.StreamResponse:
        body = await http.read()
        try:
            return await self._answer(http, body)
        except asyncio.CancelledError:
            self._log(http.method, http.path_qs, "", CUT_STATUS)  # the client went away
            raise

    async def _answer(self, http: web.Request, body: bytes) -> web.StreamResponse:
        path = http.rel_url.raw_path.removeprefix(PREFIX) or "/"
        found = self._find(http.method, path)
        operation = found[0] if found is not None else None
        fault: Fault | None = None
        actor: Actor | None = None
        try:
            if found is None:
                raise Violation("no operation that the twin knows")
            call = self._understood(http, *found, body)
            fault = self._faults.take(found[0].id)
            await _before(fault)
            call.stale = fault is not None and fault.kind is Kind.STALE
            actor = call.actor = self._keys.by_header(http.headers.get("Authorization"))
            reply = await asyncio.to_thread(self._alone, call)
        except Violation as violation:
            self._violations.append(f"{http.method} {http.path_qs}: {violation}")
            reply = Problem(400, f"This is not what GitHub takes, says its twin: {violation}").reply
        except Problem as refused:
            reply = refused.reply
        except _Cut:
            return self._cut(http, operation)
        except Exception as error:  # noqa: BLE001  # a mistake of the twin's own must not look like GitHub being away
            self._violations.append(f"{http.method} {http.path_qs}: the twin failed: {error!r}")
            reply = Reply(500, f"the twin failed: {type(error).__name__}")
        # A list of a hundred takes a tenth of a second to look through; git is answered from this loop too.
        reply = await asyncio.to_thread(self._described, http, operation, reply)
        if fault is not None and fault.kind is Kind.CUT_AFTER:
            return self._cut(http, operation)
        if fault is not None and fault.kind in (Kind.BAD_GATEWAY, Kind.BAD_GATEWAY_AFTER):
            reply = Reply(502, UNICORN)
        self._log(http.method, http.path_qs, operation.id if operation else "", reply.status)
        return self._response(operation, actor, reply)

    def _find(self, method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
        """`/repositories/ID/…` is the same as `/repos/OWNER/NAME/…`: redirects and links lead there."""
        numbered = re.fullmatch(r"/repositories/(\d+)(/.*)?", path)
        if numbered is not None:
            there = self._world.by_id(int(numbered[1]))
            path = f"/repos/{there.full_name if there else 'gone/gone'}{numbered[2] or ''}"
        return description.find(method, path)

    def _understood(self, http: web.Request, operation: Operation, path: dict[str, str], body: bytes) -> Call:
        """The request held against the description. Problem for headers without which GitHub does not listen."""
        if not http.headers.get("User-Agent", "").strip():
            self._violations.append(f"{http.method} {http.path_qs}: no User-Agent header")
            raise Problem(403, "Request forbidden by administrative rules. Please make sure your request has a"
                               " User-Agent header.")  # fmt: skip
        wrong = _headers(http, body)
        parameters, more = description.check_parameters(operation, "path", list(path.items()))
        given = parse_qsl(http.rel_url.raw_query_string, keep_blank_values=True)
        query, also = description.check_parameters(operation, "query", given)
        wrong += more + also + _unwise(query)
        parsed, malformed = _json(body)
        wrong += malformed or description.check_body(operation, parsed)
        if wrong:
            raise Violation("; ".join(wrong))
        return Call(self._world, self._keys, operation, parameters, query, {} if parsed is None else parsed, None)

    def _alone(self, call: Call) -> Reply:
        """One request after the other: what a handler looks at stays as it is until it is done."""
        with self._world.lock:
            return self._charged(call)

    def _charged(self, call: Call) -> Reply:
        """Carried out, when the hour's budget has room for it."""
        limit, used = self._budget(call.actor)
        if used >= limit:
            raise Problem(403, f"API rate limit exceeded for user ID {call.actor.person.id if call.actor else 0}.")
        self._used[_key(call.actor)] = used + 1
        rights.check_kind(call.operation, call.actor)
        if "owner" in call.path:
            call.repository = self._repository(call)
            rights.check(call.operation, call.actor, call.repository, pull=isinstance(call.named, Pull))
        return _HANDLERS[call.operation.id](call)

    def _repository(self, call: Call) -> Repository:
        """The one that the path names, if it may be seen. Problem with a redirect when it has another name now."""
        name = f"{call.path['owner']}/{call.path['repo']}"
        found = self._world.repository(name)
        app = call.actor is not None and call.actor.app is not None and call.operation.id in rights.BY_APP
        if found is None or not (app or rights.sees(call.actor, found)):
            raise not_found()
        if found.full_name.lower() != name.lower():
            rest = call.operation.path.removeprefix("/repos/{owner}/{repo}")
            for each, value in call.path.items():
                rest = rest.replace(f"{{{each}}}", str(value))
            query = urlencode(call.query)
            to = f"{self._world.api}/repositories/{found.id}{rest}" + (f"?{query}" if query else "")
            raise moved(call.operation, to)
        return found

    def _described(self, http: web.Request, operation: Operation | None, reply: Reply) -> Reply:
        """The reply, if it is one that the description allows: a twin that makes things up is worse than none."""
        if operation is None or reply.status >= 500:
            return reply
        wrong = description.check_reply(operation, reply.status, reply.body)
        if not wrong:
            return reply
        self._violations.append(f"{http.method} {http.path_qs}: the twin's own reply: {'; '.join(wrong)}")
        return Problem(500, f"The twin's own reply is wrong: {wrong[0]}").reply

    def _response(self, operation: Operation | None, actor: Actor | None, reply: Reply) -> web.Response:
        limit, used = self._budget(actor)
        self._requests += 1
        headers = {
            "X-GitHub-Request-Id": f"TWIN:{self._requests:08X}",
            "X-GitHub-Media-Type": "github.v3; format=json",
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Used": str(used),
            "X-RateLimit-Remaining": str(limit - used),
            "X-RateLimit-Reset": str(self._reset),
            "X-RateLimit-Resource": "core",
            **rights.headers(operation, actor),
            **reply.headers,
        }
        if isinstance(reply.body, str):
            return web.Response(status=reply.status, text=reply.body, content_type="text/html", headers=headers)
        if reply.body is None:
            return web.Response(status=reply.status, headers=headers)
        return web.json_response(reply.body, status=reply.status, headers=headers)

    def _budget(self, actor: Actor | None) -> tuple[int, int]:
        """The limit, and what of it has been used in this hour."""
        if time.time() > self._reset:
            self._used.clear()
            self._reset = math.ceil(time.time()) + _HOUR
        return BUDGET[actor is not None], self._used.get(_key(actor), 0)

    def _cut(self, http: web.Request, operation: Operation | None) -> web.Response:
        reset_connection(http)
        self._log(http.method, http.path_qs, operation.id if operation else "", CUT_STATUS)
        return web.Response()  # goes nowhere: the connection is gone


class _Cut(Exception):
    pass


async def _before(fault: Fault | None) -> None:
    """What goes wrong before anything is done."""
    if fault is None:
        return
    if fault.kind is Kind.SLOW:
        await asyncio.sleep(fault.seconds)
    elif fault.kind is Kind.CUT:
        raise _Cut
    elif fault.kind is Kind.BAD_GATEWAY:
        raise Problem(502, "Server Error")
    elif (refused := problem(fault)) is not None:
        raise refused


def _headers(http: web.Request, body: bytes) -> list[str]:
    wrong = []
    accept = [part.partition(";")[0].strip() for part in http.headers.get("Accept", "*/*").split(",")]
    if not any(_ACCEPT.fullmatch(part) for part in accept):
        wrong.append(f"header Accept: {', '.join(accept)}")
    version = http.headers.get("X-GitHub-Api-Version")
    if version is not None and version not in VERSIONS:
        wrong.append(f"header X-GitHub-Api-Version: {version} is none of {', '.join(VERSIONS)}")
    kind = http.headers.get("Content-Type", "").partition(";")[0].strip()
    if body and kind != "application/json":
        wrong.append(f"header Content-Type: {kind or 'missing'} beside a body of JSON")
    return wrong


def _unwise(query: Mapping[str, Any]) -> list[str]:
    """What GitHub takes, and does something else than was meant."""
    wrong = []
    if "head" in query and not re.fullmatch(r"[^:]+:.+", str(query["head"])):
        wrong.append("query parameter head: without `owner:` GitHub does not filter at all")
    size, page = (query[name] if isinstance(query.get(name), int) else 1 for name in ("per_page", "page"))
    if not 1 <= size <= MOST_PER_PAGE:
        wrong.append(f"query parameter per_page: GitHub gives 1 to {MOST_PER_PAGE}")
    if page < 1:
        wrong.append("query parameter page: they begin with 1")
    return wrong


def _json(body: bytes) -> tuple[Any, list[str]]:
    if not body:
        return None, []
    try:
        return json.loads(body), []
    except ValueError:
        return None, ["body: Problems parsing JSON"]


def _key(actor: Actor | None) -> str:
    return actor.key if actor is not None else ""

"""Git over HTTP for bare repositories, answering as GitHub does: `git http-backend` behind aiohttp."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote

from aiohttp import web

from perdure.rehearsal.server import reset_connection
from tests.twins.github.http_backend import backend, head, out

_CHUNK = 64 * 1024
_PATH = re.compile(r"/(?P<name>[^/]+/[^/]+?)(?:\.git)?/(?P<rest>info/refs|git-upload-pack|git-receive-pack)")
_SERVICES = ("git-upload-pack", "git-receive-pack")
_PROBE = 4  # bytes: before a long push git sends a flush packet alone, to find out whether it may


@dataclass(frozen=True)
class Visit:
    """One request: who wants to do what to which repository (`owner/name`, as it was written in the URL).

    `username` and `password` are None without Basic authentication.
    """

    repository: str
    write: bool
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def operation(self) -> str:
        """`git/push` or `git/fetch`, as faults name it."""
        return "git/push" if self.write else "git/fetch"


@dataclass(frozen=True)
class Refusal:
    """An answer instead of the repository; git shows the lines of `text` as `remote: …`. 401 asks for a password."""

    status: int
    text: str


@dataclass(frozen=True)
class Moved:
    """The repository has another name now, `owner/name`: answered with a redirect, which git follows at its start."""

    repository: str


ASK = Refusal(401, "No anonymous write access.")
"""For a push without a name."""

BAD_CREDENTIALS = Refusal(
    401, "Invalid username or token. Password authentication is not supported for Git operations."
)
NOT_FOUND = Refusal(404, "Repository not found.")
"""Also for a private repository that the visitor may not see; without a name it is a 401 with this text."""

NO_WRITE = Refusal(403, "Write access to repository not granted.")
ARCHIVED = Refusal(403, "This repository was archived so it is read-only.")


class Moment(StrEnum):
    """When a fault may strike a visitor who has been let in.

    OPENED    the first request of a fetch or push, `info/refs`: a fault here ends git at once
    ASKED     a request that carries work, before it is begun; a fetch may have several
    DONE      what was pushed is there, and the answer has not been sent
    """

    OPENED = "opened"
    ASKED = "asked"
    DONE = "done"


class Cut:
    """The connection is reset instead of an answer. On one that it has used before, git's curl sends it all again."""


CUT = Cut()
Allowed = Callable[[Visit], Path | Refusal | Moved]
Disturb = Callable[[Visit, Moment], Awaitable[web.Response | Cut | None]]
"""None lets the request go on; to be slow, wait inside."""


class SmartHTTP:
    """Serves what `allowed` lets through; `log` gets (method, path, operation, status) of every answer.

    A process that works for a client ends with the client's connection or with the server, whichever comes first.
    """

    def __init__(
        self,
        allowed: Allowed,
        *,
        disturb: Disturb | None = None,
        log: Callable[[str, str, str, int], None] | None = None,
    ) -> None:
        self._allowed, self._disturb, self._log = allowed, disturb, log

    def add_routes(self, app: web.Application) -> None:
        """`GET …/info/refs`, `POST …/git-upload-pack` and `POST …/git-receive-pack`, with and without `.git`."""
        app.router.add_get("/{owner}/{name}/info/refs", self.handle)
        for service in _SERVICES:
            app.router.add_post(f"/{{owner}}/{{name}}/{service}", self.handle)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request of a git client. aiohttp's own unpacking of gzip bodies must be on (it is by default)."""
        found = _PATH.fullmatch(unquote(request.path))
        service = request.query.get("service", "") if request.method == "GET" else request.path.rpartition("/")[2]
        if found is None or service not in _SERVICES:
            return web.Response(status=403, text="Please upgrade your git client.\n")
        visit = Visit(found["name"], service == "git-receive-pack", *_basic(request.headers.get("Authorization", "")))
        answer = await self._answer(request, visit, found["rest"])
        if self._log is not None:
            self._log(request.method, request.path, visit.operation, answer.status)
        return answer

    async def _answer(self, request: web.Request, visit: Visit, rest: str) -> web.StreamResponse:
        place = self._allowed(visit)
        if isinstance(place, Moved):
            where = f"/{place.repository}.git/{rest}" + (f"?{request.query_string}" if request.query_string else "")
            return web.Response(status=301, headers={"Location": f"{request.scheme}://{request.host}{where}"})
        if isinstance(place, Refusal):
            ask = {"WWW-Authenticate": 'Basic realm="GitHub"'} if place.status == 401 else {}
            return web.Response(status=place.status, text=f"{place.text}\n", headers=ask)
        first, probe = rest == "info/refs", request.content_length == _PROBE
        if not probe and (disturbed := await self._disturbed(request, visit, Moment.OPENED if first else Moment.ASKED)):
            return disturbed
        async with backend(request, place, rest, visit.username or "") as running:
            status, headers = await head(running)
            if first or visit.write:  # a short answer: what git has done is known before the client hears of it
                body = await out(running).read()
                if not first and not probe and (disturbed := await self._disturbed(request, visit, Moment.DONE)):
                    return disturbed
                return web.Response(status=status, headers=headers, body=body)
            response = web.StreamResponse(status=status, headers=headers)
            await response.prepare(request)
            while chunk := await out(running).read(_CHUNK):
                await response.write(chunk)
            await response.write_eof()
            return response

    async def _disturbed(self, request: web.Request, visit: Visit, moment: Moment) -> web.Response | None:
        found = await self._disturb(visit, moment) if self._disturb is not None else None
        if isinstance(found, Cut):
            reset_connection(request)
            return web.Response(status=499)
        return found


def protect(repository: Path, *patterns: str, rules: bool = False) -> None:
    """Let a bare repository refuse pushes to branches that match (`perdure/**`; `*` matches slashes too).

    In the words of GitHub's branch protection (GH006) or, with `rules`, of its rulesets (GH013).
    """
    hook = repository / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_HOOK.format(patterns="|".join(patterns), said=_RULES if rules else _PROTECTED))
    hook.chmod(0o755)


_PROTECTED = """\
echo "error: GH006: Protected branch update failed for $1." >&2
echo "error: " >&2
echo "error: - Changes must be made through a pull request." >&2"""

_RULES = """\
echo "error: GH013: Repository rule violations found for $1." >&2
echo "Review all repository rules at https://github.com/OWNER/NAME/rules?ref=$1" >&2
echo >&2
echo "- Cannot create ref due to creations being restricted." >&2
echo >&2"""

_HOOK = """\
#!/bin/sh
case "${{1#refs/heads/}}" in
{patterns}) ;;
*) exit 0 ;;
esac
{said}
exit 1
"""


def _basic(header: str) -> tuple[str | None, str | None]:
    """Name and password of Basic authentication; (None, None) without."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None, None
    try:
        name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None, None
    return name, password

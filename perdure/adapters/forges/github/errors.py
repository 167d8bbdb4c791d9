"""Errors at GitHub: worth another try, and when, or a person's to mend, and how."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any

from perdure.models.errors import ForgeRefused, ForgeUnavailable, PerdureError, StepError
from perdure.text import one_line

FORGE_RETRY_AFTER_CAP_S = 3600.0
"""A forge's budget of requests is new every hour: what asks for more is a mistake, and costs one request to see."""

FORGE_SECONDARY_PAUSE_S = 60.0
"""After a rate limit that did not say until when: GitHub asks for at least a minute."""


log = logging.getLogger(__name__)

_WORDS = 300  # of what GitHub says, in one line
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, AssertionError)
"""Errors of PyGithub and of reading its answers when bytes are no JSON, or JSON is not GitHub's."""


@contextmanager
def speaking(where: str, variable: str, *, missing: StepError | None = None) -> Iterator[None]:
    """Everything that can go wrong in the block becomes ForgeRefused or ForgeUnavailable, without its cause: that
    has headers and bodies in it. `where`: page of the repository; `variable`: where our token comes from; `missing`:
    raised for 404."""
    try:
        yield
    except PerdureError:
        raise
    except Exception as error:  # of a library; what it is not known to raise is raised again
        meaning = translate(error, where, variable)
        if meaning is None:
            raise
        raise (missing if missing is not None and getattr(error, "status", 0) == 404 else meaning) from None


def translate(error: Exception, where: str, variable: str) -> StepError | None:
    """The error as our own; None for one that is nobody's but a programmer's."""
    import requests
    from github import BadAttributeException, GithubException, IncompletableObject

    if isinstance(error, IncompletableObject | BadAttributeException | RecursionError):
        return ForgeUnavailable("GitHub's answer cannot be understood", where=where)
    if isinstance(error, GithubException):
        return of_status(error.status, error.data, error.headers or {}, where, variable)
    if isinstance(error, requests.Timeout):
        return ForgeUnavailable("GitHub does not answer", where=where)
    if isinstance(error, requests.exceptions.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        fix = "set REQUESTS_CA_BUNDLE to the file with your company's certificates, or mend the server's certificate"
        what = "certificate verify failed: the certificate of the server is not trusted"
        return ForgeRefused(what, where=where, fix=fix)
    if isinstance(error, requests.RequestException | OSError):
        reason = _reason(error)
        return ForgeUnavailable("GitHub cannot be reached" + (f": {reason}" if reason else ""), where=where)
    if isinstance(error, RuntimeError) and "redirected" in str(error):
        fix = "set PERDURE_GITHUB_URL to the address that the server itself uses"
        return ForgeRefused("the server sends us to another one, and a token does not go there", where=where, fix=fix)
    if type(error).__module__.startswith("jwt") or "PEM" in str(error) or "deserialize key" in str(error):
        return ForgeRefused("the App's private key is none", where=variable, fix="use the .pem file GitHub gave you")
    if isinstance(error, _UNREADABLE):
        log.warning("an answer of GitHub's that cannot be understood", exc_info=error)  # or a mistake of ours
        return ForgeUnavailable("GitHub's answer cannot be understood", where=where)
    return None


def of_status(status: int, data: Any, headers: Mapping[str, Any], where: str, variable: str) -> StepError:
    """Return the error that an answer of 400 and above means. `headers` have lower-case names."""
    said = words(data)
    if status == 429 or (status == 403 and _limited(said, headers)):
        return _limit(said, headers, where)
    if status >= 500 or status in (408, 425):
        return ForgeUnavailable(f"GitHub is not well ({status})", where=where, retry_after=_seconds(headers))
    if status == 401:
        what = "the App's id and its newest private key" if variable.endswith("_APP_KEY") else "a token that is valid"
        fix = f"set {variable} to {what}, then start the worker again: perdure down && perdure up"
        return ForgeRefused(f"GitHub does not accept the token: {said}", where=variable, fix=fix)
    if status == 403:
        return _forbidden(said, headers, where, variable)
    if status in (404, 410):
        lacking = _scopes(headers)
        fix = f"give {variable} {lacking}" if lacking else f"check the address, and what {variable} may see"
        return ForgeRefused("GitHub has no such thing, or the token cannot see it", where=where, fix=fix)
    fix = "mend what GitHub names, then: perdure retry"
    return ForgeRefused(f"GitHub does not take it ({status}): {said}", where=where, fix=fix)


def words(data: Any) -> str:
    """GitHub's own words, with those about single fields: `Validation Failed: head invalid`; one line."""
    if not isinstance(data, Mapping):
        return one_line(str(data or "no words"), _WORDS)
    parts = [str(data.get("message") or "no words")]
    errors = data.get("errors")
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, Mapping):
            said = error.get("message") or " ".join(str(error[key]) for key in ("field", "code") if error.get(key))
            parts.append(str(said))
        else:
            parts.append(str(error))
    return one_line(": ".join([parts[0], "; ".join(parts[1:])]) if parts[1:] else parts[0], _WORDS)


def problems(data: Any) -> list[tuple[str, str, str]]:
    """(field, code, message) of every complaint of a 422, each possibly empty; first the one about the whole."""
    errors = data.get("errors") if isinstance(data, Mapping) else None
    found = [("", "", str(data.get("message") or ""))] if isinstance(data, Mapping) else []
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, Mapping):
            found.append((str(error.get("field") or ""), str(error.get("code") or ""), str(error.get("message") or "")))
        else:
            found.append(("", "", str(error)))
    return found


def accepted(headers: Mapping[str, Any]) -> str:
    """The permission a fine-grained token or an App would have needed: `Pull requests: write`; empty when not said."""
    choices = [part.strip() for part in str(headers.get("x-accepted-github-permissions") or "").split(";")]
    return " or ".join(" and ".join(_permission(one) for one in choice.split(",")) for choice in choices if choice)


def without_scope(headers: Mapping[str, Any], *, private: bool) -> str:
    """`the scope repo`, when this is a classic token (only these have scopes) without it; empty otherwise."""
    if "x-oauth-scopes" not in headers:
        return ""
    has = {scope.strip() for scope in str(headers["x-oauth-scopes"]).split(",")}
    enough = {"repo"} if private else {"repo", "public_repo"}
    return "" if has & enough else f"the scope {'repo' if private else 'public_repo (or repo)'}"


def _permission(text: str) -> str:
    name, _, level = text.strip().partition("=")
    return f"{name.replace('_', ' ').capitalize()}: {level or 'read'}"


def _limited(said: str, headers: Mapping[str, Any]) -> bool:
    return (
        "retry-after" in headers
        or str(headers.get("x-ratelimit-remaining")) == "0"
        or bool(re.search(r"rate limit|abuse detection|retry your request again later|wait a few minutes", said, re.I))
    )


def _limit(said: str, headers: Mapping[str, Any], where: str) -> ForgeUnavailable:
    """As GitHub says it wants it: retry-after, else the reset of an exhausted budget, else at least a minute."""
    pause = _seconds(headers)
    if pause is None and str(headers.get("x-ratelimit-remaining")) == "0":
        pause = _until_reset(headers)
    pause = min(FORGE_SECONDARY_PAUSE_S if pause is None else pause, FORGE_RETRY_AFTER_CAP_S)
    return ForgeUnavailable(f"GitHub wants us to slow down: {said}", where=where, retry_after=pause)


def _seconds(headers: Mapping[str, Any]) -> float | None:
    text = str(headers.get("retry-after") or "")
    return min(float(text), FORGE_RETRY_AFTER_CAP_S) if text.isascii() and text.isdigit() else None


def _until_reset(headers: Mapping[str, Any]) -> float | None:
    """By the server's clock: ours may be wrong by hours."""
    reset = str(headers.get("x-ratelimit-reset") or "")
    if not (reset.isascii() and reset.isdigit()):
        return None
    return max(1.0, float(reset) - server_time(headers) + 1.0)  # both are whole seconds


def server_time(headers: Mapping[str, Any]) -> float:
    """Seconds since 1970 by the clock of the one who answered, or ours when it does not say."""
    try:
        return parsedate_to_datetime(str(headers["date"])).timestamp()
    except (LookupError, ValueError):
        return time.time()


def _forbidden(said: str, headers: Mapping[str, Any], where: str, variable: str) -> ForgeRefused:
    if sso := str(headers.get("x-github-sso") or ""):
        found = re.search(r"/orgs/([\w.-]+)/", sso)
        whom = f"the organisation {found[1]}" if found else "the organisation"
        fix = f"GitHub → Settings → Tokens → Configure SSO: authorise {variable} for {whom}"
        return ForgeRefused(f"{whom} wants the token to be authorised (single sign-on)", where=where, fix=fix)
    if "archived" in said.lower():
        fix = "unarchive it, or deliver to another repository"
        return ForgeRefused("the repository is archived: nobody can change it", where=where, fix=fix)
    if lacking := _scopes(headers):
        return ForgeRefused(f"the token lacks {lacking}: {said}", where=where, fix=f"give {variable} {lacking}")
    if needed := accepted(headers):
        return ForgeRefused(f"the token may not do this: {said}", where=where, fix=f"give {variable} {needed}")
    return ForgeRefused(f"GitHub forbids it: {said}", where=where, fix=f"check what {variable} may do there")


def _scopes(headers: Mapping[str, Any]) -> str:
    """The scopes, one of which would have been needed, when a classic token has none of them; empty otherwise."""
    if "x-oauth-scopes" not in headers:
        return ""
    has = {scope.strip() for scope in str(headers["x-oauth-scopes"]).split(",")} - {""}
    wants = {scope.strip() for scope in str(headers.get("x-accepted-oauth-scopes") or "").split(",")} - {""}
    if not wants or has & wants or "repo" in has:
        return ""
    return f"the scope {'repo' if 'repo' in wants else ' or '.join(sorted(wants))}"


def _reason(error: BaseException | None) -> str:
    """Return the operating system's words below all the library's layers: `Connection refused`."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, OSError) and error.strerror:
            return one_line(error.strerror, _WORDS)
        below = error.args[0] if error.args else None
        below = getattr(below, "reason", below)
        error = below if isinstance(below, BaseException) else (error.__cause__ or error.__context__)
        seen += 1
    return ""

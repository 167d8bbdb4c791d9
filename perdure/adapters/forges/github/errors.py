"""Errors of GitHub and its libraries as our own: ForgeUnavailable, with the time to wait, where another try is worth
it; ForgeRefused, with advice, where a person has to correct something. Everything that speaks to GitHub runs in
`raise_forge_errors`."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any

from perdure.models.errors import ForgeRefused, ForgeUnavailable, PerdureError, StepError
from perdure.text import one_line, redact_known

FORGE_RETRY_AFTER_CAP_S = 3600.0
"""The longest pause that GitHub may ask for: its limit on requests begins anew every hour. Asking for more is a mistake
of its own, and finding out costs one request."""

FORGE_SECONDARY_PAUSE_S = 60.0
"""The pause after a rate limit that did not say until when: GitHub asks for at least a minute."""


log = logging.getLogger(__name__)

_MESSAGE_CHARS = 300  # characters of a message of GitHub's, in one line
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, AssertionError)
"""Errors of PyGithub, and of reading its answers, when bytes are no JSON or the JSON is not GitHub's."""


@contextmanager
def raise_forge_errors(where: str, variable: str, *, missing: StepError | None = None) -> Iterator[None]:
    """Raise every error of GitHub or its libraries in the block as ForgeRefused or ForgeUnavailable, without its cause,
    which has headers and bodies in it.

    where     page of the repository
    variable  the environment variable that our token comes from
    missing   raised for status 404 instead

    Errors of Perdure's own, and those that no library is known to raise, go through unchanged.
    """
    try:
        yield
    except PerdureError:
        raise
    except Exception as error:  # of a library; what it is not known to raise is raised again
        forge_error = to_forge_error(error, where, variable)
        if forge_error is None:
            raise
        raise (missing if missing is not None and getattr(error, "status", 0) == 404 else forge_error) from None


def to_forge_error(error: Exception, where: str, variable: str) -> StepError | None:
    """Convert an error of PyGithub, requests or the system to ForgeRefused or ForgeUnavailable and return it; None for
    one that only a mistake in a program explains. Logs a warning for an answer that cannot be understood."""
    import requests
    from github import BadAttributeException, GithubException, IncompletableObject

    if isinstance(error, IncompletableObject | BadAttributeException | RecursionError):
        return ForgeUnavailable("GitHub's answer cannot be understood", where=where)
    if isinstance(error, GithubException):
        return status_error(error.status, error.data, error.headers or {}, where, variable)
    if isinstance(error, requests.Timeout):
        return ForgeUnavailable("GitHub does not answer", where=where)
    if isinstance(error, requests.exceptions.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        fix = "set REQUESTS_CA_BUNDLE to the file with your company's certificates, or mend the server's certificate"
        what = "certificate verify failed: the certificate of the server is not trusted"
        return ForgeRefused(what, where=where, fix=fix)
    if isinstance(error, requests.RequestException | OSError):
        reason = _os_error_reason(error)
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


def status_error(status: int, data: Any, headers: Mapping[str, Any], where: str, variable: str) -> StepError:
    """Return the error that an answer with a status of 400 and above means: ForgeUnavailable for rate limits, 408, 425
    and 5xx, with the time to wait if it is known; else ForgeRefused with advice.

    data     the answer's JSON
    headers  its headers, names in lower case
    """
    message = error_message(data)
    if status == 429 or (status == 403 and _is_rate_limit(message, headers)):
        return _rate_limit_error(message, headers, where)
    if status >= 500 or status in (408, 425):
        return ForgeUnavailable(f"GitHub is not well ({status})", where=where, retry_after=_retry_after_s(headers))
    if status == 401:
        what = "the App's id and its newest private key" if variable.endswith("_APP_KEY") else "a token that is valid"
        fix = f"set {variable} to {what}, then start the worker again: perdure down && perdure up"
        return ForgeRefused(f"GitHub does not accept the token: {message}", where=variable, fix=fix)
    if status == 403:
        return _forbidden_error(message, headers, where, variable)
    if status in (404, 410):
        missing_scopes = _missing_scopes(headers)
        fix = (
            f"give {variable} {missing_scopes}" if missing_scopes else f"check the address, and what {variable} may see"
        )
        return ForgeRefused("GitHub has no such thing, or the token cannot see it", where=where, fix=fix)
    fix = "mend what GitHub names, then: perdure retry"
    return ForgeRefused(f"GitHub does not take it ({status}): {message}", where=where, fix=fix)


def error_message(data: Any) -> str:
    """Return GitHub's message in an answer's JSON, with those about single fields, in one line: `Validation Failed:
    head invalid`. Data of another shape is shown as text; `no words` where there is nothing to show."""
    if not isinstance(data, Mapping):
        return one_line(redact_known(str(data or "no words")), _MESSAGE_CHARS)
    parts = [str(data.get("message") or "no words")]
    errors = data.get("errors")
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, Mapping):
            detail = error.get("message") or " ".join(str(error[key]) for key in ("field", "code") if error.get(key))
            parts.append(str(detail))
        else:
            parts.append(str(error))
    text = ": ".join([parts[0], "; ".join(parts[1:])]) if parts[1:] else parts[0]
    return one_line(redact_known(text), _MESSAGE_CHARS)


def validation_errors(data: Any) -> list[tuple[str, str, str]]:
    """Return (field, code, message) of every complaint in the JSON of a 422, each possibly empty; first the one about
    the whole request. Empty for JSON that is no object."""
    errors = data.get("errors") if isinstance(data, Mapping) else None
    complaints = [("", "", str(data.get("message") or ""))] if isinstance(data, Mapping) else []
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, Mapping):
            complaints.append(
                (str(error.get("field") or ""), str(error.get("code") or ""), str(error.get("message") or ""))
            )
        else:
            complaints.append(("", "", str(error)))
    return complaints


def accepted_permissions(headers: Mapping[str, Any]) -> str:
    """Return the permission that a fine-grained token or an App would have needed, from an answer's headers: `Pull
    requests: write`; empty when GitHub does not say."""
    choices = [part.strip() for part in str(headers.get("x-accepted-github-permissions") or "").split(";")]
    return " or ".join(
        " and ".join(_permission_label(permission) for permission in choice.split(",")) for choice in choices if choice
    )


def missing_repo_scope(headers: Mapping[str, Any], *, private: bool) -> str:
    """Return the scope of access to a repository that a classic token lacks, such as `the scope repo`. Empty when it
    has one, or is no classic token: only these have scopes."""
    if "x-oauth-scopes" not in headers:
        return ""
    scopes = {scope.strip() for scope in str(headers["x-oauth-scopes"]).split(",")}
    sufficient = {"repo"} if private else {"repo", "public_repo"}
    return "" if scopes & sufficient else f"the scope {'repo' if private else 'public_repo (or repo)'}"


def _permission_label(text: str) -> str:
    """Return `pull_requests=write` as people read it: `Pull requests: write`."""
    name, _, level = text.strip().partition("=")
    return f"{name.replace('_', ' ').capitalize()}: {level or 'read'}"


def _is_rate_limit(message: str, headers: Mapping[str, Any]) -> bool:
    """Return True when an answer of 403 means a rate limit, by its headers or its message."""
    return (
        "retry-after" in headers
        or str(headers.get("x-ratelimit-remaining")) == "0"
        or bool(
            re.search(r"rate limit|abuse detection|retry your request again later|wait a few minutes", message, re.I)
        )
    )


def _rate_limit_error(message: str, headers: Mapping[str, Any], where: str) -> ForgeUnavailable:
    """Return the error of a rate limit with the pause until the next try, at most FORGE_RETRY_AFTER_CAP_S.

    The pause is what GitHub asks for: `retry-after`, else the time until an exhausted limit begins anew, else a minute.
    """
    pause_s = _retry_after_s(headers)
    if pause_s is None and str(headers.get("x-ratelimit-remaining")) == "0":
        pause_s = _until_reset_s(headers)
    pause_s = min(FORGE_SECONDARY_PAUSE_S if pause_s is None else pause_s, FORGE_RETRY_AFTER_CAP_S)
    return ForgeUnavailable(f"GitHub wants us to slow down: {message}", where=where, retry_after=pause_s)


def _retry_after_s(headers: Mapping[str, Any]) -> float | None:
    """Return the header `retry-after` in seconds, at most FORGE_RETRY_AFTER_CAP_S; None when it is missing or no
    number."""
    text = str(headers.get("retry-after") or "")
    return min(float(text), FORGE_RETRY_AFTER_CAP_S) if text.isascii() and text.isdigit() else None


def _until_reset_s(headers: Mapping[str, Any]) -> float | None:
    """Return the seconds until the limit on requests begins anew, or None when no header says so. Compared with the
    server's clock: ours may be wrong by hours."""
    reset = str(headers.get("x-ratelimit-reset") or "")
    if not (reset.isascii() and reset.isdigit()):
        return None
    return max(1.0, float(reset) - server_time(headers) + 1.0)  # both are whole seconds


def server_time(headers: Mapping[str, Any]) -> float:
    """Return the seconds since 1970 by the clock of the server that answered, or by ours when its headers do not
    say."""
    try:
        return parsedate_to_datetime(str(headers["date"])).timestamp()
    except (LookupError, ValueError):
        return time.time()


def _forbidden_error(message: str, headers: Mapping[str, Any], where: str, variable: str) -> ForgeRefused:
    """Return the error that an answer of 403 means, with what to do: single sign-on, an archived repository, a missing
    scope or permission; for any other reason GitHub's own message."""
    if sso := str(headers.get("x-github-sso") or ""):
        match = re.search(r"/orgs/([\w.-]+)/", sso)
        organisation = f"the organisation {match[1]}" if match else "the organisation"
        fix = f"GitHub → Settings → Tokens → Configure SSO: authorise {variable} for {organisation}"
        return ForgeRefused(f"{organisation} wants the token to be authorised (single sign-on)", where=where, fix=fix)
    if "archived" in message.lower():
        fix = "unarchive it, or deliver to another repository"
        return ForgeRefused("the repository is archived: nobody can change it", where=where, fix=fix)
    if missing_scopes := _missing_scopes(headers):
        return ForgeRefused(
            f"the token lacks {missing_scopes}: {message}", where=where, fix=f"give {variable} {missing_scopes}"
        )
    if permissions := accepted_permissions(headers):
        return ForgeRefused(f"the token may not do this: {message}", where=where, fix=f"give {variable} {permissions}")
    return ForgeRefused(f"GitHub forbids it: {message}", where=where, fix=f"check what {variable} may do there")


def _missing_scopes(headers: Mapping[str, Any]) -> str:
    """Return the scopes of which a classic token would have needed one and has none, such as `the scope repo`; empty
    otherwise."""
    if "x-oauth-scopes" not in headers:
        return ""
    scopes = {scope.strip() for scope in str(headers["x-oauth-scopes"]).split(",")} - {""}
    accepted_scopes = {scope.strip() for scope in str(headers.get("x-accepted-oauth-scopes") or "").split(",")} - {""}
    if not accepted_scopes or scopes & accepted_scopes or "repo" in scopes:
        return ""
    return f"the scope {'repo' if 'repo' in accepted_scopes else ' or '.join(sorted(accepted_scopes))}"


def _os_error_reason(error: BaseException | None) -> str:
    """Return the operating system's message below all layers of libraries, such as `Connection refused`; empty when
    there is none within ten layers."""
    depth = 0
    while error is not None and depth < 10:
        if isinstance(error, OSError) and error.strerror:
            return one_line(error.strerror, _MESSAGE_CHARS)
        inner = error.args[0] if error.args else None
        inner = getattr(inner, "reason", inner)
        error = inner if isinstance(inner, BaseException) else (error.__cause__ or error.__context__)
        depth += 1
    return ""

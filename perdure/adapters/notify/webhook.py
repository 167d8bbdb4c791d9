"""A notice as a webhook: its body, JSON for programs and in it `text` for people in a chat, and one try to send it to
one address. The status of the answer decides, its body is never read. Used by the activity `notify`."""

from __future__ import annotations

import asyncio
import contextlib
import html
import logging
import math
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import perdure
from perdure.adapters.forges.markdown import neutral_line
from perdure.adapters.notify.addresses import Address, webhook_headers
from perdure.adapters.system.http_client import client_options
from perdure.adapters.system.threads import in_thread
from perdure.models.delivery.decisions import PendingDecision, QuestionKind
from perdure.models.delivery.summary import local_repository
from perdure.models.errors import BadInput, NoticeRefused, NoticeUnheard
from perdure.models.notice import Links, Notice, WebhookMessage, decision_options
from perdure.text import format_count, format_money, is_web_address, visible

if TYPE_CHECKING:
    import httpx2


NOTIFY_ATTEMPT_S = 15.0
"""Seconds for one try, connecting included: receivers should answer at once and work later; Slack does within a
second."""

NOTIFY_RETRY_AFTER_S = 3600.0
"""The longest pause, in seconds, that a receiver may ask for: one that asks for more would otherwise be sent a notice
once a day."""


_TEMPORARY_STATUS = (408, 425, 429)
"""Statuses, beside 5xx, that may change without anybody acting."""

_is_sending: ContextVar[bool] = ContextVar("telling", default=False)


class _SendingFilter(logging.Filter):
    """A filter that keeps the HTTP client's own lines out of the log while it knows an address of ours: it writes them
    out whole."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _is_sending.get()


_SENDING_FILTER = _SendingFilter()
_LOGGERS = ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.http2", "httpcore2.proxy")


async def post_notice(
    address: Address,
    id: str,
    body: bytes,
    keys: Iterable[bytes],
    *,
    timeout_s: float = NOTIFY_ATTEMPT_S,
    min_pause_s: float = 1.0,
) -> int:
    """Send the body of a notice to an address by POST, signed with each key, and return the status of an answer that
    accepts it (2xx).

    id           the notice's, the same when it is sent again
    timeout_s    seconds for all of it
    min_pause_s  the shortest pause, in seconds, that an answer may ask for

    Raises NoticeUnheard when another try may help (no answer in time, no connection, 408, 425, 429 or 5xx, or the
    environment names certificates or a proxy that cannot be used), with the pause that the answer asks for;
    NoticeRefused when it will not: any other 4xx, an invalid address, or a redirect, which would carry the notice to
    somebody nobody named. Neither error shows more of the address than its host.
    """
    client = await in_thread(_make_client, address, timeout_s)
    import httpx2  # loaded by now, in the thread

    signature_headers = webhook_headers(id, int(time.time()), body, keys)
    request_headers = {
        "content-type": "application/json",
        "user-agent": f"perdure/{perdure.__version__}",
        **signature_headers,
    }
    failure = "did not answer"
    with _without_http_logs():
        try:
            async with (
                asyncio.timeout(timeout_s),
                client,
                client.stream("POST", address.url, content=body, headers=request_headers) as response,
            ):
                return _check_status(
                    address, response.status_code, response.headers.get("retry-after", ""), min_pause_s
                )
        except TimeoutError:
            failure = f"did not answer within {timeout_s:.0f} s"
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            failure = "could not be reached" + _connection_problem(error)
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol):
            raise NoticeRefused(f"{address.name}: this is not an address", fix=_FIX) from None
        except (httpx2.TransportError, OSError):
            pass  # the error's text may hold the address
    raise NoticeUnheard(f"{address.name} {failure}")


_FIX = "correct [notify] url or PERDURE_WEBHOOK_URL and restart the worker"


def _check_status(address: Address, status: int, retry_after_header: str, min_pause_s: float) -> int:
    """Return a status that accepts the notice (2xx). Raises NoticeUnheard for one that may change (408, 425, 429, 5xx),
    with the pause of the header, NoticeRefused for a redirect and any other."""
    if 200 <= status < 300:
        return status
    if 300 <= status < 400:
        message = f"{address.name} answered {status}: it sends elsewhere, and that is not followed"
        raise NoticeRefused(message, fix="write the address it sends to into [notify] url, if that is right")
    if status in _TEMPORARY_STATUS or status >= 500:
        raise NoticeUnheard(
            f"{address.name} answered {status}",
            retry_after=parse_retry_after(retry_after_header, min_pause_s=min_pause_s),
        )
    gone_note = ": nobody listens there any more" if status == 410 else ""
    raise NoticeRefused(f"{address.name} answered {status}{gone_note}", fix=_FIX)


def parse_retry_after(text: str, now: datetime | None = None, *, min_pause_s: float = 1.0) -> float | None:
    """Parse a `retry-after` header, a number of seconds or a date, and return the pause in seconds, at least
    `min_pause_s` and at most NOTIFY_RETRY_AFTER_S; None for any other text, or an empty one. `now`: None: the present
    time."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text) - (now or datetime.now(UTC))).total_seconds()
        except (TypeError, ValueError):
            return None
    return min(max(seconds, min_pause_s), NOTIFY_RETRY_AFTER_S) if math.isfinite(seconds) else None


def _connection_problem(error: BaseException) -> str:
    """Return why there was no connection, as the end of a sentence, without the library's own words: a certificate or
    TLS that is not accepted, no such host, nobody who listens; empty where the causes of the error tell nothing of
    these."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            is_certificate = isinstance(cause, ssl.SSLCertVerificationError)
            detail = (
                "certificate verify failed; SSL_CERT_FILE names more that are trusted"
                if is_certificate
                else "TLS failed"
            )
            return f": its certificate or its TLS is not accepted ({detail})"
        if isinstance(cause, socket.gaierror):
            return ": there is no such host"
        if isinstance(cause, ConnectionRefusedError):
            return ": nobody listens there"
        cause = cause.__cause__ or cause.__context__
    return ""


def _make_client(address: Address, timeout_s: float) -> httpx2.AsyncClient:
    """Make the HTTP client for one try; it follows no redirect. Called in a thread: loading the certificates takes 45
    ms.

    Raises NoticeUnheard where the environment names certificates or a proxy that cannot be used.
    """
    import httpx2

    try:
        return httpx2.AsyncClient(timeout=timeout_s, follow_redirects=False, **client_options(address.url))
    except BadInput as error:
        raise NoticeUnheard(f"{address.name} was not asked: {error.what}") from None


@contextlib.contextmanager
def _without_http_logs() -> Iterator[None]:
    """Keep the HTTP client's lines out of the log while the block runs, in this context only."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_SENDING_FILTER)  # adding it again changes nothing
    token = _is_sending.set(True)
    try:
        yield
    finally:
        _is_sending.reset(token)


def make_message(notice: Notice, web_ui: str = "") -> WebhookMessage:
    """Make the body of a webhook from a notice. `web_ui`: the address of the delivery's page in the Web UI; empty when
    it is not known.

    A pull request of the local forge has no page, so it is not linked.
    """
    pending_decision, pull_request = notice.pending_decision, notice.pull_request
    is_local = pull_request is not None and local_repository(pull_request) != ""
    links = Links(
        web_ui=web_ui or None, pull_request=pull_request.url if pull_request is not None and not is_local else None
    )
    return WebhookMessage(
        text=_message_text(notice, links),
        event=notice.event,
        id=notice.id,
        at=notice.at,
        delivery_id=notice.delivery_id,
        run_id=notice.run_id,
        repository=notice.repository,
        request=notice.request,
        phase=notice.phase or None,
        summary=notice.summary,
        gate=pending_decision.gate if pending_decision else None,
        target=pending_decision.target if pending_decision else None,
        question=pending_decision.question if pending_decision else None,
        since=pending_decision.since if pending_decision else None,
        expires=pending_decision.expires if pending_decision else None,
        decisions=decision_options(pending_decision, notice.delivery_id) if pending_decision else (),
        links=links,
        cost_usd=notice.cost_usd,
        result=notice.result,
    )


def _message_text(notice: Notice, links: Links) -> str:
    """Return the text for people in a chat, in Slack's markup: headline, question and commands, facts, links; of a test
    the summary alone.

    Everything that others wrote is on a line of its own kind, mentions nobody and links nowhere.
    """
    delivery_id = _neutral_text(notice.delivery_id, 100)
    if notice.event == "test":
        return f"*{_neutral_text(notice.summary, 300).capitalize()}*\nNothing waits for you."
    about = " · ".join(
        [
            delivery_id,
            _neutral_text(notice.repository, 200),
            _neutral_text(notice.request, 120),
            html.escape(format_money(notice.cost_usd), quote=False),
        ]
    )
    link_texts = [_markup_link(links.pull_request, _pull_request_label(notice)), _markup_link(links.web_ui, "Web UI")]
    lines = [f"*{_headline(notice)}*", *_decision_lines(notice), about, " · ".join(part for part in link_texts if part)]
    return "\n".join(text_line for text_line in lines if text_line)


def _headline(notice: Notice) -> str:
    """Return the first line, without markup: what is waited for (a decision, in a reminder for how long, or anything
    else), or at the end how the delivery has ended, with the reason."""
    if notice.pending_decision is not None:
        prefix = f"Still waiting for you{_waiting_time(notice)}" if notice.event == "reminder" else "Waiting for you"
        return f"{prefix}: {_neutral_text(notice.summary, 300)}"
    if notice.event != "ended":
        return f"Waiting: {_neutral_text(notice.summary, 300)}"
    result = notice.result or {}
    status = str(result.get("status", "ended")).replace("_", " ").capitalize()
    reason = str(result.get("reason") or "").replace("_", " ")
    summary = _neutral_text(notice.summary, 300)
    return f"{status}{f' ({reason})' if reason else ''}" + (f": {summary}" if summary else "")


def _waiting_time(notice: Notice) -> str:
    """Return ", for 3 days now": how long the delivery has waited; empty below a day."""
    days = (notice.at - notice.pending_decision.since).days if notice.pending_decision is not None else 0
    return f", for {format_count(days, 'day')} now" if days > 0 else ""


def _decision_lines(notice: Notice) -> list[str]:
    """Return the lines about what the delivery waits for: the question, when it ends without a decision, and the
    commands that decide. Some may be empty; none where no decision is waited for."""
    pending_decision = notice.pending_decision
    if pending_decision is None:
        return []
    deadline = (
        f"Without a decision it ends at {pending_decision.expires:%Y-%m-%d %H:%M} UTC."
        if pending_decision.expires
        else ""
    )
    commands = [_code_span(decision.command) for decision in decision_options(pending_decision, notice.delivery_id)]
    return [*_question_lines(pending_decision), deadline, " · ".join(commands)]


def _question_lines(pending_decision: PendingDecision) -> list[str]:
    """Return the lines of an agent's question: its text, its choices with numbers, and why it matters (empty where that
    is not said). None without a question."""
    if (question := pending_decision.question) is None:
        return []
    choices = question.choices if question.kind is QuestionKind.CHOICE else ()
    importance = f"It matters because: {_neutral_text(question.why, 500)}" if question.why.strip() else ""
    return [
        _neutral_text(question.text, 1000),
        *(f"{n}. {_neutral_text(choice, 100)}" for n, choice in enumerate(choices, 1)),
        importance,
    ]


def _pull_request_label(notice: Notice) -> str:
    """Return the label of the link to the pull request; empty where there is none."""
    return f"pull request #{notice.pull_request.number}" if notice.pull_request else ""


def _neutral_text(text: str, limit: int) -> str:
    """Return a text that others wrote on one line of about `limit` characters, with all markup broken: the forge's
    neutral line is enough for Mattermost, the three escapes for Slack, and in neither it is bold or code."""
    return html.escape(neutral_line(text, limit).replace("*", "∗").replace("`", "ʼ"), quote=False)


def _code_span(command: str) -> str:
    """Return a command as a code span, to be copied: unchanged but for backticks, which would end the span, and what
    nobody sees."""
    return f"`{html.escape(visible(command).replace('`', ''), quote=False)}`"


def _markup_link(url: str | None, label: str) -> str:
    """Return a link in Slack's markup; empty without an address, or for one that is no address on the web."""
    if not url or not is_web_address(url) or "|" in url:
        return ""
    return f"<{html.escape(url, quote=False)}|{label}>"

"""The body of a webhook, made from a notice in history: JSON for programs, and in it `text` for people in a chat."""

from __future__ import annotations

from perdure.adapters.forges.neutral import is_web_address, neutral_line
from perdure.models.decisions import PendingDecision, QuestionKind
from perdure.models.notice import Links, Notice, WebhookMessage, decision_options
from perdure.models.summary import local_repository
from perdure.models.webui.details import dollars
from perdure.text import visible


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
    """Return the text for people in a chat, in Slack's markup: headline, question and commands, facts, links.

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
            dollars(notice.cost_usd),
        ]
    )
    link_texts = [_markup_link(links.pull_request, _pull_request_label(notice)), _markup_link(links.web_ui, "Web UI")]
    lines = [f"*{_headline(notice)}*", *_decision_lines(notice), about, " · ".join(part for part in link_texts if part)]
    return "\n".join(text_line for text_line in lines if text_line)


def _headline(notice: Notice) -> str:
    """Return the first line, without markup: what is waited for, or how the delivery has ended."""
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
    return f", for {days} day{'s' * (days > 1)} now" if days > 0 else ""


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
    return _escape_markup(neutral_line(text, limit).replace("*", "∗").replace("`", "ʼ"))


def _code_span(command: str) -> str:
    """Return a command as a code span, to be copied: unchanged but for backticks, which would end the span, and what
    nobody sees."""
    return f"`{_escape_markup(visible(command).replace('`', ''))}`"


def _markup_link(url: str | None, label: str) -> str:
    """Return a link in Slack's markup; empty without an address, or for one that is no address on the web."""
    if not url or not is_web_address(url) or "|" in url:
        return ""
    return f"<{_escape_markup(url)}|{label}>"


def _escape_markup(text: str) -> str:
    """Return the text with the three characters escaped that Slack's markup uses."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

"""The body of a webhook, made from what lies in history: JSON for programs, and in it `text` for people in a chat."""

from __future__ import annotations

from perdure.adapters.forges.neutral import line, web_address
from perdure.models.decisions import PendingDecision, QuestionKind
from perdure.models.notice import Links, Notice, WebhookMessage, decision_options
from perdure.models.summary import local_repository
from perdure.models.webui.details import dollars
from perdure.text import visible


def message_of(notice: Notice, web_ui: str = "") -> WebhookMessage:
    """`web_ui`: the delivery's page there, empty when it is not known."""
    asked, pull = notice.pending_decision, notice.pull_request
    kept_here = pull is not None and local_repository(pull) != ""
    links = Links(web_ui=web_ui or None, pull_request=pull.url if pull is not None and not kept_here else None)
    return WebhookMessage(
        text=_text(notice, links),
        event=notice.event,
        id=notice.id,
        at=notice.at,
        delivery_id=notice.delivery_id,
        run_id=notice.run_id,
        repository=notice.repository,
        request=notice.request,
        phase=notice.phase or None,
        summary=notice.summary,
        gate=asked.gate if asked else None,
        target=asked.target if asked else None,
        question=asked.question if asked else None,
        since=asked.since if asked else None,
        expires=asked.expires if asked else None,
        decisions=decision_options(asked, notice.delivery_id) if asked else (),
        links=links,
        cost_usd=notice.cost_usd,
        result=notice.result,
    )


def _text(notice: Notice, links: Links) -> str:
    """Everything that others wrote is on a line of its own kind, calls nobody and links nowhere."""
    what = _words(notice.delivery_id, 100)
    if notice.event == "test":
        return f"*{_words(notice.summary, 300).capitalize()}*\nNothing waits for you."
    about = " · ".join([what, _words(notice.repository, 200), _words(notice.request, 120), dollars(notice.cost_usd)])
    shown = [_link(links.pull_request, _pull(notice)), _link(links.web_ui, "Web UI")]
    lines = [f"*{_headline(notice)}*", *_asked(notice), about, " · ".join(part for part in shown if part)]
    return "\n".join(one for one in lines if one)


def _headline(notice: Notice) -> str:
    if notice.pending_decision is not None:
        again = f"Still waiting for you{_since(notice)}" if notice.event == "reminder" else "Waiting for you"
        return f"{again}: {_words(notice.summary, 300)}"
    if notice.event != "ended":
        return f"Waiting: {_words(notice.summary, 300)}"
    result = notice.result or {}
    words = str(result.get("status", "ended")).replace("_", " ").capitalize()
    reason = str(result.get("reason") or "").replace("_", " ")
    why = _words(notice.summary, 300)
    return f"{words}{f' ({reason})' if reason else ''}" + (f": {why}" if why else "")


def _since(notice: Notice) -> str:
    days = (notice.at - notice.pending_decision.since).days if notice.pending_decision is not None else 0
    return f", for {days} day{'s' * (days > 1)} now" if days > 0 else ""


def _asked(notice: Notice) -> list[str]:
    asked = notice.pending_decision
    if asked is None:
        return []
    ends = f"Without a decision it ends at {asked.expires:%Y-%m-%d %H:%M} UTC." if asked.expires else ""
    commands = [_code(decision.command) for decision in decision_options(asked, notice.delivery_id)]
    return [*_question(asked), ends, " · ".join(commands)]


def _question(asked: PendingDecision) -> list[str]:
    if (question := asked.question) is None:
        return []
    choices = question.choices if question.kind is QuestionKind.CHOICE else ()
    why = f"It matters because: {_words(question.why, 500)}" if question.why.strip() else ""
    return [_words(question.text, 1000), *(f"{n}. {_words(choice, 100)}" for n, choice in enumerate(choices, 1)), why]


def _pull(notice: Notice) -> str:
    return f"pull request #{notice.pull_request.number}" if notice.pull_request else ""


def _words(text: str, limit: int) -> str:
    """Others' words: the forge's neutral line does for Mattermost, the three escapes for Slack, and neither is bold."""
    return _escaped(line(text, limit).replace("*", "∗").replace("`", "ʼ"))


def _code(command: str) -> str:
    """A command to be copied: as it is, but for what would end its span."""
    return f"`{_escaped(visible(command).replace('`', ''))}`"


def _link(url: str | None, words: str) -> str:
    if not url or not web_address(url) or "|" in url:
        return ""
    return f"<{_escaped(url)}|{words}>"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

"""`/style`: each component of the page, from the templates that the page itself uses, in both colour schemes and two
widths. For who changes their looks; what is shown is made up, and its forms lead nowhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from perdure.client.server.overview import OverviewRow
from perdure.client.server.view import PendingActivity
from perdure.models.checks.report import Severity
from perdure.models.checks.verdict_text import ReviewPoint
from perdure.models.delivery.conversation import ConversationBlock, ConversationTurn
from perdure.models.delivery.decisions import Gate, PendingDecision, Question, QuestionKind
from perdure.models.delivery.steps import Plan, Task
from perdure.models.events import Event, EventType
from perdure.page.guard import HEADERS
from perdure.page.render import render, static_contents
from perdure.page.views.conversation import answer_fields, checkpoint_of
from perdure.page.views.inbox import anchor_of, card_class, group_by_lane, path_of, worker_text
from perdure.page.views.review import ShownChange, color_lines
from perdure.render.change import ChangeByFile, ChangedFile, ChangeLine
from perdure.render.decision_lines import decision_subject
from perdure.render.event_text import event_sentence, worker_death_sentence
from perdure.render.report.view import diff_lines

_POLICY = "Content-Security-Policy"
_SHOWS_FRAMES = {_POLICY: f"{HEADERS[_POLICY]}; frame-src 'self'"}
_IN_FRAMES = {_POLICY: HEADERS[_POLICY].replace("frame-ancestors 'none'", "frame-ancestors 'self'")}

_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_LONG = "A title that goes on and on, with `code`, <angles>, ein-sehr-langes-zusammengesetztes-Wort and an end"


def routes() -> list[web.RouteDef]:
    """Return the routes of this view."""
    return [
        web.get("/style", show_style),
        web.get("/style/{scheme:light|dark}", show_components),
        web.get("/style/{scheme:light|dark}/{name:report.css|page.css}", serve_looks),
    ]


async def show_style(request: web.Request) -> web.Response:
    """Render the components four times, in frames: light and dark, wide and narrow."""
    answer = render(request, "style.html")
    answer.headers.update(_SHOWS_FRAMES)
    return answer


async def serve_looks(request: web.Request) -> web.Response:
    """Answer with a style sheet of the page as it is in one of the schemes, whatever the browser's own is."""
    body, kind = static_contents()[request.match_info["name"]]
    scheme = request.match_info["scheme"].encode()
    body = body.replace(b"(prefers-color-scheme: dark)", b"all" if scheme == b"dark" else b"not all")
    return web.Response(body=body.replace(b"color-scheme: light dark", b"color-scheme: " + scheme), content_type=kind)


async def show_components(request: web.Request) -> web.Response:
    """Render each component once, in the scheme that the path names; only a page of ours may show it in a frame."""
    point = ReviewPoint(
        Severity.BLOCKER, "It divides by zero", "`half(0)` fails.", "calc.py", 2, "Return 0.", "reviewer"
    )
    lines = (
        ChangeLine("place", "@@ -1,2 +1,3 @@"),
        ChangeLine("", "def half(a):", 1, 1),
        ChangeLine("gone", "    return a / 0", 2, None),
        ChangeLine("added", "    return a / 2  # " + "long " * 30, None, 2, 40, (point,)),
    )
    files = (
        ChangedFile("calc.py", 1, 1, False, lines),
        ChangedFile("tests/" + "a" * 90 + ".py", 9, 0, True, notes=("new file",), test_facts=("3 tests failed",)),
    )
    code, _ = await color_lines(files)
    rows = _sample_rows()
    answer = render(
        request,
        "style_components.html",
        id="sample",
        scheme=request.match_info["scheme"],
        waiting=[row for row in rows if row.waits],
        lanes=group_by_lane(rows),
        cards_most=50,
        questions_most=300,
        is_cut=True,
        trouble="it did not answer within 5 s",
        unblocks={"sample": 3},
        anchor=anchor_of,
        link=path_of,
        worker=worker_text,
        state=card_class,
        questions=[(decision, decision_subject(decision)) for decision in _sample_questions()],
        shown=ShownChange(ChangeByFile(files, is_cut=True, points=(point,)), code),
        plan=Plan(
            title="Add half",
            problem="There is no half.",
            solution="Write it.",
            relevant_files=["calc.py"],
            tasks=[Task(title=_LONG, details="Beside add.", files=["calc.py"])],
            validation=["half(4) is 2"],
        ),
        tiles=[
            ("Tests", "12 passed", ["1 fixed"], "good"),
            ("Cost", "$0.43", ["of $5.00"], ""),
            ("Review", "2 blockers", [], "bad"),
        ],
        **_conversation_values(),
    )
    answer.headers.update(_IN_FRAMES)
    return answer


def _sample_questions() -> list[PendingDecision]:
    """Return a question of each kind that is decided in another way."""
    decision = PendingDecision(gate=Gate.PLAN, target="1a2b3c4d", summary="approve the plan: Add half", since=_AT)
    text = Question(text="What of an odd number?", kind=QuestionKind.TEXT, why="Callers see it.")
    choice = text.model_copy(update={"kind": QuestionKind.CHOICE, "choices": ("a fraction", _LONG)})
    yes_no = text.model_copy(update={"kind": QuestionKind.YES_NO})
    question = {"gate": Gate.QUESTION, "options": ("answer",)}
    return [
        decision,
        decision.model_copy(update={"gate": Gate.PULL_REQUEST, "target": "0fdf8d0aa"}),
        decision.model_copy(update={"gate": Gate.BUDGET, "limit": "usd", "options": ("add_budget", "reject")}),
        *(decision.model_copy(update={**question, "question": wording}) for wording in (text, choice, yes_no)),
    ]


def _sample_rows() -> list[OverviewRow]:
    """Return a row of each state that has a look of its own."""
    decision = _sample_questions()[0]
    rest: dict[str, Any] = {"since": None, "started": _AT, "closed": None, "cost_usd": 0.43, "title": "Add half"}
    place = ("delivery", "https://github.com/me/calc")
    return [
        OverviewRow("sample", *place, "plan", "waiting", decision, **rest | {"since": _AT, "title": _LONG}),
        OverviewRow("held", *place, "build", "waiting", None, held="held by ada", **rest),
        OverviewRow(
            "works",
            *place,
            "build",
            "running",
            None,
            **rest,
            activity="implement",
            turn=3,
            doing="pytest -q",
            worker="1@box/0a",
            change="+120 −14, 3 files · tests 455/455",
        ),
        OverviewRow("silent", *place, "test", "running", None, **rest, worker="1@box/0a", silent_since=_AT, attempt=2),
        OverviewRow(
            "failed", *place, "ship", "not_delivered", None, **rest | {"closed": _AT}, reason="tests stayed red"
        ),
        OverviewRow("night", "backlog", place[1], "", "running", None, **rest | {"title": ""}),
    ]


def _conversation_values() -> dict[str, Any]:
    """Return the values of conversation_rows.html and conversation_running.html, with a row of each kind."""
    turn = ConversationTurn(
        checkpoint="c",
        blocks=(
            ConversationBlock(text="I add half, and a test of it."),
            ConversationBlock(text='{"kind": "feature", "reason": "something new"}'),
            ConversationBlock(text="Not tested since your last edit", engine=True),
            ConversationBlock(
                tool="edit", arguments="calc.py", output="edited", change="--- calc.py\n+++ calc.py\n@@\n-0\n+2"
            ),
            ConversationBlock(tool="bash", arguments="pytest -q", output="1 failed", failed=True),
        ),
        omitted=2,
        diff="--- calc.py\n+++ calc.py\n@@\n-0\n+2",
        changed=("calc.py",),
    )
    data: list[tuple[EventType, dict[str, Any]]] = [
        (EventType.STEP_STARTED, {}),
        (EventType.ACTIVITY, {"checkpoint": "c", "cost_usd": 0.01, "tries": 2, "read": ["a"]}),
        (EventType.ACTIVITY, {"checkpoint": "gone", "cost_usd": None, "summary": "1 · edits calc.py"}),
        (EventType.WORKER_DEATH, {"tries": 2, "worker": "7@box/0a"}),
        (EventType.GATE, {"gate": "plan", "words": "approve the plan: Add half"}),
    ]
    events = [
        Event(
            offset=n,
            time="2026-01-02T03:04:05.678Z",
            delivery="sample",
            type=kind,
            step="implement",
            attempt=1,
            turn=n,
            data=fields,
        )
        for n, (kind, fields) in enumerate(data)
    ]
    pending = PendingActivity(
        "implement", 2, {"turn": 3, "doing": "pytest -q", "reply_tail": "Then I look at "}, "", "9@box/0b", died=True
    )
    return {
        "events": events,
        "older": 0,
        "turn_of": {"c": turn}.get,
        "turns_unread": "its host does not answer",
        "sentence": event_sentence,
        "place": lambda _: "implement:1",
        "checkpoint": checkpoint_of,
        "diff_lines": diff_lines,
        "answer": answer_fields,
        "seen": {"pending": [pending], "running": True},
        "death_sentence": worker_death_sentence,
        "messages": [],
    }

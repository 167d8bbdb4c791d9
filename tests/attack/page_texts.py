"""Texts of models and strangers on the page, in a real browser: none may script, link out, look like a control of ours or
leave its box; and as many ordinary ones that have to be shown as they are."""

# ruff: noqa: E501 - one text a line reads as the table it is

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import unicodedata
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Error, Page, async_playwright
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from perdure.client import Perdure
from perdure.local.identity import find_free_ports
from perdure.local.page import ListenAddress, ServedPage, ensure_page_token
from perdure.models.delivery.decisions import Gate, PendingDecision, Question, QuestionKind
from perdure.models.ids import TITLE
from perdure.page.server import serve_page
from perdure.text import escape_path, name_hidden_characters, visible
from tests import needs
from tests.attack.table import LEFT, Case, Ground, Seen, held, works
from tests.engine_with_github import EngineWithGitHub, engine_with_github
from tests.repositories import CALC, make_target
from tests.waiting import patient

GROUP, HONEST = "text on the page", "honest text on the page"

HOSTILE: Mapping[str, str] = {
    "a script": "<script id={m}>alert({n})</script>",
    "a picture with a handler": "<img id={m} src=x onerror=alert({n})>",
    "the end of an attribute and a handler": '"><svg id={m} onload=alert({n})>',
    "the end of an attribute and a focus": "' autofocus tabindex=0 onfocus=alert({n}) id='{m}",
    "the end of a text box and a script": "</textarea></title></style><script id={m}>alert({n})</script>",
    "a frame with a page of its own": "<iframe id={m} srcdoc='<script>parent.alert({n})</script>'></iframe>",
    "a link to a script": "<a id={m} href='javascript:alert({n})'>Approve</a>",
    "a page as data": "<object id={m} data='data:text/html,<script>alert({n})</script>'></object>",
    "a link to elsewhere": "<a href=https://evil.example/{m}>Review and decide</a>",
    "a picture of elsewhere": "<img src=https://evil.example/{m}>",
    "a way to elsewhere": "<meta name={m} http-equiv=refresh content='0;url=https://evil.example/{m}'>",
    "another place for all links": "<base href=https://evil.example/{m}/>",
    "a form that approves": "<form id={m} method=post action=/deliveries/x/decide/approve><button>Approve commit 0fdf8d0</button></form>",
    "a button for the form of ours": "<button id={m} form=decision formaction=/leave>Reject</button>",
    "an open dialog": "<dialog open id={m}><h2>Session ended</h2><input name=token></dialog>",
    "the end of what is around it": "</pre></code></td></tr></table></li></ol></main></body><p id={m}>Approved",
    "a box over the page": "<div id={m} style='position:fixed;inset:0;z-index:9'>Approve</div>",
    "a style for the page": "<style>/*{m}*/ * {{ display: none !important }}</style>",
    "a comment without an end": "<!-- {m} the rest is gone",
    "an element that takes the rest as text": "<plaintext id={m}>",
    "a request of htmx": "<div id={m} hx-post=/leave hx-trigger=load hx-include=form>x</div>",
    "a script of htmx": "<div id={m} hx-on:load=alert({n}) hx-on::init=alert({n}) data-hx-get=/leave>x</div>",
    "a part of htmx": "<hx-partial id={m} hx-target=body hx-swap=innerHTML>Approved</hx-partial>",
    "a frame of the stream": "{m} one\n\nevent: close\ndata: <script id={m}>alert({n})</script>\n\nid: 99999\nretry: 1",
    "a frame of the stream by carriage returns": "{m} one\r\rdata: <img id={m} src=x onerror=alert({n})>\r\r",
    "a frame of the stream by line separators": "{m} one\u2028\u2028data: <b id={m}>two</b>\u2029",
    "letters in reverse": "{m} \u202edna evorppa\u202c \u2066\u2067x",
    "letters that nobody sees": "{m} app\u200brove\u2060 \U000e0041\U000e0042\ufeff",
    "colours and links of a terminal": "{m} \x1b[31mred \x1b]8;;https://evil.example\x07Approve\x1b]8;;\x07\x1b[2J",
    "a thousand letters without a gap": "{m} " + "w" * 1000,
    "a link of Markdown": "[{m} Approve](https://evil.example/{m}) ![{m}](https://evil.example/{m}.png)",
    "a template": "{m} {{{{ 7 * 7 }}}} {{% for x in range(9) %}}x{{% endfor %}} ${{7*7}}",
}  # fmt: skip
"""`{m}` is a mark of its own in each, `{n}` its number."""

UNARMED = {"a link of Markdown", "a template"}
"""Do nothing in a page of HTML alone: what they are for is a page that reads them once more."""

ORDINARY: Mapping[str, str] = {
    "an element of HTML": '{m} <div class="a">x</div>',
    "a type in angle brackets": "{m} List<Map<String, Integer>>",
    "an entity": "{m} &lt;b&gt; &amp;amp; &#39;",
    "comparisons": "{m} a < b && c > d",
    "quotation marks": "{m} it's \"so\" `there`",
    "Arabic": "{m} أضف دالة الطرح",
    "Hebrew": "{m} הוסף פונקציה",
    "Japanese": "{m} 引き算を足す",
    "Devanagari": "{m} घटाव जोड़ें",
    "accents": "{m} naïve Größe — café",
    "an accent of its own": "{m} cafe\u0301 A\u030a",
    "an emoji": "{m} done 🎉🚀",
    "a flag": "{m} 🇩🇪 and 👍🏽",
    "signs of mathematics": "{m} ∑ x² ≤ √2 · π",
    "an address": "{m} https://example.org/a?b=c&d=e#f",
    "a path of Windows": "{m} C:\\new\\table\\x",
    "a template of a shell": "{m} ${HOME} $(date) %s %d",
    "a template of Jinja": "{m} {{ name }} {% if x %}",
    "a regular expression": "{m} ^\\s*(?:a|b)+$",
    "JSON": '{m} {"a": [1, null], "b": "<c>"}',
    "a remark of XML": "{m} <!-- not yet -->",
    "a line of SQL": "{m} SELECT * FROM t WHERE a <> 'b';",
    "the word Approve": "{m} Approve only with two keys",
    "a word with underscores": "{m} __proto__ and constructor",
    "a line of a stream": "{m} data: one",
    "a name with an at sign": "{m} @ada #12 !3",
    "a header of HTTP": "{m} Content-Type: text/html; charset=utf-8",
    "a style": "{m} color: #fff !important;",
    "stars and lists": "{m} *bold* - [x] done",
    "a long sentence": "{m} " + "it goes on " * 12,
    "a percent sign": "{m} 50 % of 100%25",
    "a currency": "{m} 5 € or £4 or ¥600",
}  # fmt: skip
"""As HOSTILE; what else stands in braces stays."""

assert len(ORDINARY) == len(HOSTILE)


def _written(texts: Mapping[str, str], first: int, *, formatted: bool) -> dict[str, str]:
    """Each text by its name, with its mark in it."""
    return {
        name: text.format(m=f"k{n}x", n=n) if formatted else text.replace("{m}", f"k{n}x")
        for n, (name, text) in enumerate(texts.items(), first)
    }


HOSTILE_TEXTS, ORDINARY_TEXTS = _written(HOSTILE, 100, formatted=True), _written(ORDINARY, 200, formatted=False)
TEXTS = {**HOSTILE_TEXTS, **ORDINARY_TEXTS}

PLACES = {
    "a title": "the inbox",
    "a question": "its review",
    "the agent's words": "the conversation, as they come",
    "a tool's output": "the conversation, as it comes",
    "a file's name": "the change",
    "a changed line": "the change",
    "a test's name": "the tests",
    "a finding": "the review",
    "an issue": "the form that starts it",
}
"""Where texts of others come from, and the part of the page that shows them."""

BEFORE = {"a question": "asks ", "a tool's output": "prints ", "a file's name": "file "}
"""What stands before each text where the same page shows it for another reason, too."""

_LINES = re.compile("[\n\r\u2028\u2029]+")
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e0fff]")

_LOOK = r"""() => {
  for (const one of document.querySelectorAll("details")) one.open = true;
  const held = [], texts = [], shown = new Set(["title", "value", "aria-label"]);
  for (const one of document.querySelectorAll("*"))
    for (const { name, value } of one.attributes)
      if (/k\d+x/.test(name + value) && !shown.has(name)) held.push(`<${one.localName} ${name}="${value}">`);
  const walk = document.createTreeWalker(document.body ?? document, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const parent = walk.currentNode.parentElement;
    if (parent?.closest("script, style, textarea, title, option, template, plaintext, dialog")) continue;
    if (parent?.getClientRects().length) texts.push(walk.currentNode.data);
  }
  return { held, texts: texts.join(" "), wide: document.documentElement.scrollWidth > innerWidth };
}"""


@dataclass
class Shown:
    """What a browser has shown: texts, attributes with a mark in them, dialogs, requests to elsewhere; and whether the
    page was wider than its window."""

    held: list[str] = field(default_factory=list)
    texts: str = ""
    wide: bool = False
    acts: list[str] = field(default_factory=list)
    """Of the whole context so far: a mark in them says whose they are."""

    def fault(self, name: str, text: str) -> str:
        """What of this text did more than being read; empty: nothing."""
        number = re.findall(r"k(\d+)x", text)[0]
        of_it = re.compile(rf"k{number}x|\({number}\)")
        if acted := next(filter(of_it.search, [*self.acts, *self.held]), ""):
            return acted
        if self.wide:
            return "the page is wider than its window"
        lines = [line for line in map(str.split, _LINES.split(text)) if line]
        plain = " ".join(self.texts.split())
        for words in map(" ".join, lines):
            forms = [
                " ".join(form(words[:120]).split()) for form in (str, visible, name_hidden_characters, escape_path)
            ]
            if not any(form in plain for form in forms[1 if name in HOSTILE else 0 :]):
                return f"not to be read: {words[:40]}"
        near = next((self.texts[at : at + 60] for at in [self.texts.find(f"k{number}x")] if at >= 0), "")
        return f"invisible characters in {near!r}" if _UNSEEN.search(near) else ""


def _of_xml(text: str) -> str:
    """Without what no document of XML can hold."""
    return "".join(c for c in text if c in "\t\n" or (c >= " " and unicodedata.category(c) != "Cc"))


_WRITE = """import json
for number, text in enumerate(json.load(open("texts.json"))):
    name = f"file {text}".replace("/", "|").encode()[:120].decode(errors="ignore")
    open(name, "w", newline="").write(f"x = {number}  # {text}\\n")
"""
_REPORT = """import json, os
from xml.sax.saxutils import quoteattr
names = json.load(open("names.json"))
cases = "".join(f"<testcase classname='t' name={quoteattr(one)}/>" for one in names)
open(os.environ["PERDURE_REPORT"], "w").write(f"<testsuite>{cases}</testsuite>")
"""
CONFIG = """version = 1
[setup]
commands = []
[delivery]
on_failure = "draft"
[[test]]
name = "unit"
command = "python3 report.py"
report = "junit"
"""


def _screenplay(portions: Sequence[Sequence[str]]) -> str:
    """A turn that says and prints each portion, one that writes all, and a review with a finding of each."""
    lines = []
    for turn, texts in enumerate(portions, 1):
        run = {"tool": "bash", "input": {"command": f"cat out{turn}.txt"}}
        lines.append(
            f'[[line]]\nstep = "implement"\nturn = {turn}\nsay = {_toml(chr(10).join(texts))}\nuse = [{_toml(run)}]'
        )
    run = {"tool": "bash", "input": {"command": "python3 write.py"}}
    lines.append(f'[[line]]\nstep = "implement"\nturn = {len(portions) + 1}\nuse = [{_toml(run)}]')
    lines.append('[[line]]\nstep = "implement"\nsay = "Add files"')
    issue = {"severity": "skippable", "file": "calc.py", "line": 1, "suggestion": ""}
    issues = [{**issue, "title": f"Finding {n}", "description": text} for n, text in enumerate(TEXTS.values())]
    lines.append(f'[[line]]\nstep = "review"\nanswer = {{ summary = "Seen.", issues = {_toml(issues)} }}')
    return "\n".join(lines)


def _toml(value: object) -> str:
    """A value in TOML, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


@asynccontextmanager
async def _browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        program = needs.find_program("chromium")
        browser = await playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=patient(60) * 1000
        )
        try:
            yield browser
        finally:
            await browser.close()


def _watch(context: BrowserContext, acts: list[str], own: str = "http://127.0.0.1") -> None:
    """Note what a page does: dialogs, which are closed, and requests to elsewhere, which are not let out."""

    async def at_request(route: Any) -> None:
        if (address := route.request.url).startswith((own, "data:", "about:", "blob:")):
            await route.continue_()
        else:
            acts.append(f"asks for {address}")
            await route.abort()

    async def at_dialog(dialog: Any) -> None:
        acts.append(f"alert ({dialog.message})")
        await dialog.dismiss()

    context.on("dialog", lambda dialog: asyncio.ensure_future(at_dialog(dialog)))
    context.on("page", lambda page: page.on("pageerror", lambda error: acts.append(str(error))))
    asyncio.ensure_future(context.route("**/*", at_request))  # noqa: RUF006  # ends with the context


async def _look(page: Page, acts: list[str]) -> Shown:
    found = await page.evaluate(_LOOK)
    return Shown(found["held"], found["texts"], found["wide"], acts)


async def _alone(browser: Browser) -> dict[str, str]:
    """What each hostile text does in a page that does not escape it; nothing for those that it cannot harm."""
    context, acts, seen = await browser.new_context(viewport=_PHONE), list[str](), dict[str, str]()
    _watch(context, acts)
    for name, text in HOSTILE_TEXTS.items():
        for around in ("<p>{}</p>", "<p title='{}'>"):
            page = await context.new_page()  # the one before may be on its way to elsewhere
            await page.set_content(around.format(text), wait_until="commit")
            await asyncio.sleep(0.1)  # for what begins as it is loaded; an attribute of it is there at once
            try:
                fault = (await _look(page, acts)).fault(name, text)
            except Error:  # the page is not there any more
                fault = "leads elsewhere"
            await page.close()
            if fault:
                break
        seen[name] = fault
    await context.close()
    return seen


_PHONE = {"width": 390, "height": 844}
_PORTION = 2800
"""Characters of a turn's words and output: the page cuts a text at 4,000."""


def _portions() -> list[list[str]]:
    portions = [list[str]()]
    for text in TEXTS.values():
        if sum(map(len, portions[-1])) + len(text) > _PORTION:
            portions.append([])
        portions[-1].append(text)
    return portions


async def _stands_waiting(client: Client, repository: str, number: int, text: str) -> None:
    """A delivery of this title that asks this, as the server lists it; no worker has ever seen it."""
    line = " ".join(text.split())
    title = line.encode()[:240].decode(errors="ignore")
    choices = (line[:400], "no")
    asked = PendingDecision(
        gate=Gate.QUESTION, target=str(number), summary=line[:300], since=datetime(2026, 1, 2, tzinfo=UTC),
        question=Question(text=f"asks {text}", kind=QuestionKind.CHOICE, choices=choices, why=line), options=("answer",),
    )  # fmt: skip
    attributes = [
        SearchAttributePair(SearchAttributeKey.for_keyword(TITLE), title),
        SearchAttributePair(SearchAttributeKey.for_keyword("PerdureStatus"), "waiting"),
    ]
    await client.start_workflow(
        "Delivery", {"repository": repository, "request": text}, id=f"text-{number}", task_queue="nobody-works-here",
        memo={"asked": asked.model_dump(mode="json")}, search_attributes=TypedSearchAttributes(attributes),
    )  # fmt: skip


async def _show(world: EngineWithGitHub, served: ServedPage, browser: Browser) -> dict[tuple[str, str], Shown]:
    """All places where texts of others are shown, each as a browser had it; by the place, and the text where each has
    a page of its own."""
    github, engine = world.github, world.engine
    context, acts, seen = await browser.new_context(viewport=_PHONE), list[str](), dict[tuple[str, str], Shown]()
    _watch(context, acts)
    page = await context.new_page()
    page.set_default_timeout(patient(60) * 1000)
    await page.goto(served.address)
    await page.wait_for_url(f"{served.url}/")
    submitted = await engine.perdure.submit(
        {"repository": f"{github.url}/me/texts", "request": "Add files", "config": CONFIG,
         "phases": ["build", "test", "review", "ship"], "gates": ["pull_request"]}, id="texts",
    )  # fmt: skip
    await page.goto(f"{served.url}/deliveries/texts")
    engine.worker()
    await page.get_by_role("link", name="Review and decide").wait_for()
    for place in ("the agent's words", "a tool's output"):  # all of its rows came with the stream
        seen[place, ""] = await _look(page, acts)
    for place, part in (
        ("a file's name", "decide"),
        ("a changed line", "change"),
        ("a test's name", "tests"),
        ("a finding", "review"),
    ):
        await page.goto(f"{served.url}/deliveries/texts/{part}")
        seen[place, ""] = await _look(page, acts)
    issue = github.add_issue("me/texts", "Texts of strangers", "\n\n".join(TEXTS.values()))
    await page.goto(f"{served.url}/start")
    await page.get_by_role("textbox", name="request").fill(f"{github.url}/me/texts/issues/{issue}")
    await page.get_by_role("heading", name="Texts of strangers").wait_for()
    seen["an issue", ""] = await _look(page, acts)
    await submitted.delivery.cancel()
    for number, text in enumerate(TEXTS.values()):
        await _stands_waiting(engine.client, f"{github.url}/me/texts", number, text)
    await page.goto(served.url)
    await page.locator(".question").nth(len(TEXTS) - 1).wait_for()  # the newest come with the stream
    seen["a title", ""] = await _look(page, acts)
    for number, name in enumerate(TEXTS):
        await page.goto(f"{served.url}/deliveries/text-{number}/decide")
        seen["a question", name] = await _look(page, acts)
    await context.close()
    return seen


@dataclass
class _Tried:
    alone: dict[str, str]
    seen: dict[tuple[str, str], Shown]


def _all_shown(at: Ground) -> _Tried:
    async def show() -> _Tried:
        root = Path(tempfile.mkdtemp(dir=at.root))
        portions = _portions()
        files = {
            f"out{turn}.txt": "\n".join(f"prints {text}" for text in texts) for turn, texts in enumerate(portions, 1)
        }
        files |= {"write.py": _WRITE, "report.py": _REPORT, "texts.json": json.dumps(list(TEXTS.values()))}
        files["names.json"] = json.dumps([_of_xml(text) for text in TEXTS.values()])
        source = make_target(root / "source" / "texts.git", files={**CALC, **files})
        async with engine_with_github(root, _screenplay(portions), ports=find_free_ports().grpc) as world:
            world.github.add_repository("me/texts", source=source)
            perdure = Perdure(world.engine.client, world.engine.home.key())
            place = ListenAddress(port=18000)
            async with (
                serve_page(perdure, ensure_page_token(world.engine.home), place) as served,
                _browser() as browser,
            ):
                return _Tried(await _alone(browser), await _show(world, served, browser))

    return asyncio.run(show())


def _text(place: str, name: str) -> Callable[[Ground], Seen]:
    def attack(at: Ground) -> Seen:
        if needs.find_program("chromium") is None:
            return Seen(LEFT, "no browser is installed")
        tried = at.once(_all_shown)
        text = BEFORE.get(place, "") + TEXTS[name]
        if place == "a file's name":  # as _WRITE writes it
            text = text.replace("/", "|").encode()[:120].decode(errors="ignore")
        elif place == "a tool's output":  # a carriage return goes back to the beginning of a terminal's line
            text = text.strip("\r").rpartition("\r")[2]
        elif place == "a test's name":
            text = _of_xml(text)
        shown = tried.seen.get((place, name)) or tried.seen[place, ""]
        fault = shown.fault(name, text)
        if name in ORDINARY:
            return works(not fault, fault or "shown as it is")
        alone = tried.alone[name]
        if not alone and name not in UNARMED:
            return Seen("MISSED", "proves nothing: it does nothing in a page that does not escape it, either")
        return held(not fault, fault or f"a text and nothing else; unescaped: {alone or 'the same'}")

    return attack


CASES = tuple(
    Case(
        GROUP if name in HOSTILE else HONEST,
        f"{place} has {name}",
        f"a text in {where}",
        _text(place, name),
        benign=name in ORDINARY,
    )
    for place, where in PLACES.items()
    for name in TEXTS
)

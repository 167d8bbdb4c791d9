"""The change and the decisions, in a report: every line of the one, who made the other, and nobody's markup."""

from __future__ import annotations

from report_samples import sample

from perdure.models.delivery.result import DecisionMade
from perdure.render.report import view
from perdure.render.report.page import page_of
from perdure.render.report.text import lines_of

PATCH = """diff --git a/calc.py b/calc.py
index 1..2 100644
--- a/calc.py
+++ b/calc.py
@@ -1 +1,2 @@
-def add(a, b): ...
+def add(a, b):
+    return "<script>alert(1)</script>\u202e"
"""
MADE = (
    DecisionMade(gate="plan", target="1a2b3c4d", verdict="rejected", by="ada", note="with <b>types</b>"),
    DecisionMade(gate="pull_request", target="9f8e", verdict="approved", by="bob"),
)


def test_the_page_has_the_whole_change_and_who_decided_what() -> None:
    page = page_of(sample(diff=PATCH, decisions=MADE))
    assert '<span class="added">+    return &#34;&lt;script&gt;alert(1)&lt;/script&gt;&#34;\n</span>' in page
    assert '<span class="gone">-def add(a, b): ...\n</span>' in page
    assert "2 lines added, 1 removed" in page
    assert "<script" not in page
    assert "plan 1a2b3c4d rejected by ada: with &lt;b&gt;types&lt;/b&gt;" in page
    assert "pull request 9f8e approved by bob" in page
    without = page_of(sample())
    assert 'id="change"' not in without
    assert 'id="decisions"' not in without


def test_the_text_has_decisions_and_the_files_that_are_changed() -> None:
    lines = lines_of(sample(diff=PATCH, decisions=MADE))
    at = lines.index("Decisions")
    assert lines[at + 1 : at + 3] == [
        "  plan 1a2b3c4d rejected by ada: with <b>types</b>",
        "  pull request 9f8e approved by bob",
    ]
    assert lines[lines.index("Change") + 1].split() == ["+2", "−1", "calc.py"]


def test_each_line_of_a_patch_is_known_for_what_it_is() -> None:
    kinds = [kind for kind, _ in view.diff_lines(PATCH)]
    assert kinds == ["file", "file", "file", "file", "place", "gone", "added", "added"]

"""What every test may rely on: nothing of the host's environment decides about it."""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest
import pytest_timeout

from tests import needs
from tests.costs import examples, shares
from tests.processes import as_from_a_terminal
from tests.waiting import patient

KEPT = ("GIT_SSL_CAINFO",)
for name in [n for n in os.environ if n.startswith(("PERDURE_", "TEMPORAL_", "ANTHROPIC_", "GIT_", "GH_", "GITHUB_"))]:
    if name not in KEPT:
        del os.environ[name]

# The interpreter itself, where `python3` is a script that looks for one: thousands of commands of tests start it.
if (own := f"{sys.base_prefix}/bin") not in os.environ["PATH"].split(os.pathsep):
    os.environ["PATH"] = f"{own}{os.pathsep}{os.environ['PATH']}"

# Nothing depends on speed.
hypothesis.settings.register_profile("busy", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile("busy")

pytest.register_assert_rewrite("tests.engine", "tests.repositories")


os.environ["PERDURE_LOCAL_REPOSITORIES"] = tempfile.gettempdir()  # most submit as any client does, without a key


@pytest.fixture(scope="session")
def ports() -> int:
    """The first of 60 ports that this test process's workers may lease; parallel ones do not share any."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return 21000 + 60 * worker


STORIES = ("tests/e2e/", "tests/chaos/", "tests/page/")
"""Each test there is a story; elsewhere those that are have the mark."""

ABOUT_SECRETS_OR_MONEY = re.compile(
    r"secret|credential|token|leak|redact|_key|budget|treasury|ledger|spen[dt]|paid|pays|money|cost|price",
    re.IGNORECASE,
)
"""In the name of a test or its file. Such a test that fails has found something, or is wrong: `never_again`."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Long tests begin first, so that none of them is waited for alone at the end."""
    for item in items:
        if item.nodeid.startswith(STORIES):
            item.add_marker("story")
        if ABOUT_SECRETS_OR_MONEY.search(item.nodeid.partition("[")[0]):
            item.add_marker("never_again")
    yield
    # Only now is it known which are run: shares are counted over them.
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    ranks = [
        0 if item.get_closest_marker("long") else 1 if item.nodeid.startswith("tests/e2e/") else 2 for item in items
    ]
    items[:] = [items[at] for at in shares(ranks, workers)]


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> object:
    """Give a test more time on a machine that has much to do."""
    settings = settings._replace(timeout=patient(settings.timeout))
    return pytest_timeout.pytest_timeout_set_timer(item, settings)


def pytest_configure() -> None:
    as_from_a_terminal()
    gc.disable()  # thousands of modules and tests come and none goes: a third of the time to collect them


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    needs.require(*(program for mark in item.iter_markers("needs") for program in mark.args))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = {report.nodeid: str(report.longrepr).rstrip("')") for report in terminalreporter.stats.get("skipped", [])}
    if summary := needs.summary(reasons.values()):
        terminalreporter.write_line(summary)
    if terminalreporter.config.pluginmanager.has_plugin("cacheprovider"):  # runs that tests start have none
        needs.write_left_out(reasons)

"""What a power cut takes of replies and spending: nothing that was paid for."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.agents.proxied.base import OnBegun, ProxiedReply
from perdure.adapters.system.files import append_json_line
from perdure.adapters.worker import journal
from perdure.adapters.worker.journal import ReplyStore, SpendLog
from tests.adapters.worker.turn.test_budget_within_turns import Api, bought, request, turn
from tests.power_cut import Disk


def cut_power(disk: Disk, directory: Path) -> None:
    """Leave of a delivery's files what was synced, to a process that begins anew."""
    for name in ("spend.jsonl", "replies.jsonl"):
        if (directory / name).exists():
            disk.cut_power(directory / name, directory)
    journal._settle_stored_replies.cache_clear()


async def test_a_reply_that_was_paid_for_is_not_bought_again_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, api, directory = Disk(monkeypatch), Api(), tmp_path / "one"
    directory.mkdir()
    first = await bought(directory, request("a"), api)
    cut_power(disk, directory)
    spend = SpendLog(directory).total_spend()
    assert (spend.usd, spend.at_risk_usd) == (0.25, 0.0), "known before anybody asks for the reply"
    assert await bought(directory, request("a"), api) == first
    assert api.asked == 1
    assert SpendLog(directory).count_repeats() == (0, 0)


async def test_money_that_may_have_been_spent_is_not_forgotten_in_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, directory = Disk(monkeypatch), tmp_path / "one"
    directory.mkdir()
    api = Api()

    async def ask(on_begun: OnBegun) -> ProxiedReply:
        reply = await api(on_begun)
        cut_power(disk, directory)  # it is on its way: what is on the disk now is all there will be
        spend = SpendLog(directory).total_spend()
        assert (spend.usd, spend.at_risk_usd) == (0.0 if api.asked == 1 else 0.25, 1.0)
        return reply

    await bought(directory, request("a"), ask)
    await bought(directory, request("b"), ask, turn(2))
    cut_power(disk, directory)
    assert SpendLog(directory).total_spend().usd == 0.5


def test_of_two_lines_the_first_survives_a_power_cut_that_takes_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the disk of these tests has it: what is not synced is gone."""
    disk = Disk(monkeypatch)
    append_json_line(tmp_path / "log", {"n": 1}, sync=True)
    append_json_line(tmp_path / "log", {"n": 2}, sync=False)
    disk.cut_power(tmp_path / "log", tmp_path)
    assert (tmp_path / "log").read_text() == '{"n": 1}\n'
    assert ReplyStore(tmp_path).get("k") is None

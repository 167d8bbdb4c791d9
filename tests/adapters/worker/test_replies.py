"""A reply that was received is found again, whole, or not at all."""

from __future__ import annotations

from pathlib import Path

from perdure.adapters.worker.journal import ReplyStore


def test_a_reply_is_found_again_under_its_own_key_only(tmp_path: Path) -> None:
    replies = ReplyStore(tmp_path)
    assert replies.get("k") is None
    replies.put("k", {"text": "grüße \u2028"})
    assert ReplyStore(tmp_path).get("k") == {"text": "grüße \u2028"}
    assert replies.get("l") is None


def test_a_reply_that_a_disk_has_damaged_was_not_received(tmp_path: Path) -> None:
    replies = ReplyStore(tmp_path)
    replies.put("k", {"text": "a"})
    for damage in (b"", b'{"text', b"[1]", b"\xff\xfe\x00"):
        (tmp_path / "replies" / "k.json").write_bytes(damage)
        assert replies.get("k") is None

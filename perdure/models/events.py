"""The published shape of events: what happened to a delivery or a backlog, in order, for programs that follow it.
perdure/client/history reads them from Temporal's history."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from perdure.models.base import PublishedModel


class EventType(StrEnum):
    """The kinds of event; beside each, the fields of its `data`.

    started      repository, request (its first line), begins (after a start delay or by a cron schedule; null: at once)
    continued    by: `retry`, `rewind` or `length` (history goes on in another run)
    phase        phase
    step_started correction: true for a step that mends what tests or review found
    activity     a turn of an agent: summary, checkpoint, cost_usd (null: unknown), spent_usd, waited_s, tries, read
    step_ended   ending, summary
    step_failed  why
    commit       commit, files, added, deleted, summary
    test_result  status, passed, failed, failures, summary
    review       blocker, tech_debt, skippable, summary
    question     text, options
    gate         gate, of, words, options: somebody has to decide; with every field empty: nobody has to any more
    waiting      why, until (null: it lasts)
    decision     name (the update), said; by nobody else than who may reach Temporal
    said         name (the signal), said
    worker_death activity, tries, silent (nobody saw it die: its host may have slept or been cut off), worker (the next)
    landing      commit (empty: it could not), summary
    pull_request url, number, draft
    receipt      worker_deaths, turns_redone, replies_paid_twice
    item         of a backlog: event (the signal a delivery sent, or `begins`), and what it said
    ended        outcome, reason
    """

    STARTED = "started"
    CONTINUED = "continued"
    PHASE = "phase"
    STEP_STARTED = "step_started"
    ACTIVITY = "activity"
    STEP_ENDED = "step_ended"
    STEP_FAILED = "step_failed"
    COMMIT = "commit"
    TEST_RESULT = "test_result"
    REVIEW = "review"
    QUESTION = "question"
    GATE = "gate"
    WAITING = "waiting"
    DECISION = "decision"
    SAID = "said"
    WORKER_DEATH = "worker_death"
    LANDING = "landing"
    PULL_REQUEST = "pull_request"
    RECEIPT = "receipt"
    ITEM = "item"
    ENDED = "ended"


class Event(PublishedModel):
    """One thing that happened.

    offset    place in the stream of this delivery or backlog, from 0; the same whenever the stream is read
    time      UTC, as `2026-11-23T08:00:00.123Z`
    delivery  id of the delivery; null where it is a backlog's own
    backlog   id of the backlog it belongs to, or whose own it is; null without one
    item      the backlog's item; null without one
    type      see EventType, which names the fields of `data`
    step      null where it is of no step; attempt, turn: as in the turn table, null where there is none
    """

    offset: int
    time: str
    delivery: str | None
    backlog: str | None = None
    item: str | None = None
    type: EventType
    step: str | None = None
    attempt: int | None = None
    turn: int | None = None
    data: dict[str, Any] = {}

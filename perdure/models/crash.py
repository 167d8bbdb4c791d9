"""The named points at which tests kill the worker: one enum for product, docs and tests. What kills it there is in
perdure/adapters/system/crash.py."""

from __future__ import annotations

from enum import StrEnum


class CrashPoint(StrEnum):
    """Points at which a worker with `PERDURE_CRASH_AT=<point>` sends itself SIGKILL, once per PERDURE_HOME."""

    HANDED_OUT = "handed-out"
    DURING_PREPARE = "during-prepare"
    WAITING_FOR_MODEL = "waiting-for-model"
    AFTER_REPLY = "after-reply"
    DURING_TOOL = "during-tool"
    DURING_COMPACTION = "during-compaction"
    INSIDE_REF_UPDATE = "inside-ref-update"
    AFTER_SNAPSHOT = "after-snapshot"
    INSIDE_COMMIT = "inside-commit"
    DURING_TESTS = "during-tests"
    DURING_BASE_TESTS = "during-base-tests"
    DURING_CANARIES = "during-canaries"
    DURING_PROOF = "during-proof"
    AFTER_COMMENT = "after-comment"
    AFTER_ARTIFACTS = "after-artifacts"
    AFTER_FIRST_COMMIT = "after-first-commit"
    AFTER_PUSH = "after-push"
    DURING_REBASE = "during-rebase"
    AFTER_REBASE = "after-rebase"
    AFTER_LANDING = "after-landing"
    DURING_FOLLOW = "during-follow"
    AFTER_FOLLOW = "after-follow"
    AFTER_RETARGET = "after-retarget"
    AFTER_TASKS = "after-tasks"
    AFTER_ATTEMPTS = "after-attempts"
    AFTER_PULL_REQUEST = "after-pull-request"
    AFTER_NOTICE = "after-notice"

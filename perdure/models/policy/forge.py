"""Forges, webhooks, and what is written there."""

from __future__ import annotations

from datetime import timedelta

FORGE_PAUSE = timedelta(seconds=2)
FORGE_PAUSE_MAX = timedelta(minutes=5)
"""Until a forge that is away is tried again, doubling: a hiccup costs seconds, an outage of a day 300 attempts."""

FORGE_PATIENCE = timedelta(days=7)
"""How long a forge is waited for: what is to be published is done and paid for. Longer than any outage known."""

UNKNOWN_HOST_PATIENCE = timedelta(minutes=10)
"""The time the first look at a remote waits for a host's name to be known: as long as a network is away after a laptop
was opened. A misspelt one is no outage, and nothing is done or paid for yet."""

FORGE_ATTEMPT = timedelta(minutes=15)
"""One attempt at a forge: a push of a large repository over a slow line, and a dozen small requests."""

QUEUE_PATIENCE = timedelta(seconds=20)
"""For somebody to take work meant for one worker, who takes it in milliseconds unless all slots are full; then the
delivery says whom it waits for."""

TELL_TIMEOUT = (timedelta(minutes=1), timedelta(minutes=10))
"""To comment on an issue, at the start and for good at the end: the delivery's own result waits for it."""

CREDENTIAL_ANSWERS = 4
"""How often one git command is told a token: it asks once, and again after each redirect; more is a loop."""

ISSUE_BYTES = 64 * 1024
"""Of an issue's text and comments together, as much as a request may have: some 20,000 tokens in every step."""

ISSUE_COMMENT_BYTES = 16 * 1024
"""Of one comment: a pasted log must not push out what people said."""

ISSUE_TITLE_CHARS = 300
"""Of an issue's title, which goes into history: GitHub allows 256, others more."""

FORGE_SILENCE_S = 30
"""How long a forge may say nothing to one small request; GitHub itself gives up after ten seconds."""

FORGE_ANSWER_S, FORGE_ANSWER_BYTES = 120.0, 32 * 1024**2
"""For the whole of one answer, and of it unpacked: the largest, a page of a hundred comments, has some 7 MB."""

FORGE_RETRY_AFTER_CAP_S = 3600.0
"""A forge's budget of requests is new every hour: what asks for more is a mistake, and costs one request to see."""

FORGE_SECONDARY_PAUSE_S = 60.0
"""After a rate limit that did not say until when: GitHub asks for at least a minute."""

FORGE_TOKEN_MARGIN_S = 300.0
"""An App's token lives for an hour; one this close to its end could end within a push."""

FORGE_COMMENTS = 200
FORGE_COMMENTS_BYTES = 200_000
"""Of one issue's comments, the newest: longer discussions have lost their subject, and would fill a prompt."""

FORGE_PATTERN_S = 5.0
"""For one pattern of a repository's rules against one name: a tenth of a second's work, and a stranger's pattern."""

GIT_LINE_CHARS = 2000
"""Of one line that git or a remote says: an honest one has a hundred, and a stranger's may have a megabyte."""

FORGE_TEXT_CHARS = 65_536
"""GitHub refuses a body or comment that is longer."""

DOCTOR_FORGE_S = 20.0
"""For a forge to answer doctor's handful of questions, a second's work: somebody is waiting at a terminal."""

BODY_CHARS = 60_000
"""Of a pull request's text: below FORGE_TEXT_CHARS, so that a person can still add to it."""

TEMPLATE_BYTES = 32 * 1024
"""Of a repository's pull request template; a longer one is no form to fill in, and is left out."""

STATUS_CHARS = 4000
"""Of the comment on an issue: a screen or two."""

ARTIFACT_BYTES = 5_000_000
"""Of one published file: some 50,000 lines. Who reads more has the command to run it again; every clone carries it."""

ARTIFACT_ATTEMPTS = 12
ARTIFACT_PAUSE_S = 0.25
"""How often a push to the artifact branch is tried while other deliveries are faster, and the longest pause between."""

NOTIFY_FOR = timedelta(days=1)
"""An address that does not answer is tried this long: over a night, or a receiver's day of maintenance."""

NOTIFY_PAUSE, NOTIFY_PAUSE_MAX = timedelta(seconds=2), timedelta(minutes=15)
"""Between tries, doubled each time: a hundred tries in a day, and a receiver that is back is told soon."""

NOTIFY_ATTEMPT_S = 15.0
"""For one try, connecting included: receivers should answer at once and work later; Slack does within a second."""

NOTIFY_RETRY_AFTER_S = 3600.0
"""The longest pause that a receiver may ask for: one that asks for more would otherwise be told once a day."""

NOTIFY_ADDRESSES = 10
"""Addresses a host tells: each is tried by itself, and each has its lines in the notification's history."""

NOTIFY_SECRET_BYTES = 16
"""The least for a secret: what is shorter can be guessed from one signed message. Generated ones have 24 or more."""

NOTICE_STARTED = timedelta(seconds=10)
"""At its end a delivery waits until the server has taken over the last notice: milliseconds, or the server is down."""

NOTICE_RESULT_BYTES = 32 * 1024
"""Of a result in a notice; with more its steps are left out: the whole has to stay below 64 KiB of history."""

"""What people say and decide, and what they are asked."""

from __future__ import annotations

from datetime import timedelta

SAME_WORDS_IDS = 50
"""Deliveries of the same words that may end in one day and still be told apart by an id that follows from the words:
each costs one call to the server. What is begun after that gets an id by chance."""

VISIBLE_WITHIN = timedelta(minutes=1)
"""After this long lists know of what was started: they are a second behind, on a busy cluster some more."""

SAID_BYTES = 8 * 1024
"""Of one word, note or answer from a person: it is kept in history and read in every turn that follows."""

REQUEST_BYTES = 64 * 1024
"""A request is kept in history as it was sent; nothing larger than this goes there (DESIGN principle 2)."""

LABEL_CHARS, LABELS_MOST = 100, 100
"""Forges take 50 to 255 characters a label and about 100 labels; what one of them refuses is noted there."""

NAME_CHARS, PLACE_CHARS = 255, 2048
"""Of a branch or a model, as many as a file system takes for one; of an address or a path."""

USD_LEAST, USD_MOST, TOKENS_MOST = 0.01, 100_000, 10**12
"""Of a delivery's budget, and of what is added to it at once: more is a slip of the finger."""

ADDED_MOST_USD = 1_000_000
"""At once, to a day's budget: as much as one may be."""

SAID_BYTES_A_TURN = 32 * 1024
"""Of all the words that one turn reads: what is more waits for the next one."""

SAID_BYTES_AGAIN = 16 * 1024
"""Of all the words that earlier conversations have read, the newest ones: each new conversation begins with them."""

REMIND_AFTER, REMIND_LATER = timedelta(days=1), timedelta(weeks=1)
REMINDERS = 7
"""A gate that nobody has heard of waits for ever: it reminds daily for a week, then weekly."""

SAID_BYTES_KEPT = 256 * 1024
"""Of all words no turn has read: eight turns take them, and the state still fits into one payload of a new run."""

HEARD_KEPT = 500
"""Ids of words: the same ones that come again, come within minutes."""

UNREAD_SHOWN, UNREAD_CHARS = 20, 200
"""Of words that no turn has read, in a result: a failed delivery's is part of a failure, which the server cuts."""

PLAN_SHOWN_BYTES = 3_000
"""Of a plan's words, kept in the delivery's state so that they stand beside it in the Web UI: a screen. All of it
is an artifact."""

DECISIONS_SHOWN = 20
"""The newest decisions in a result: a failed delivery's is part of a failure, which the server cuts."""

DECIDED_KEPT = 200
"""Decisions a delivery remembers, so that one that arrives again is answered and not counted."""

NOTES_KEPT = 20
"""Notes of what was sent and did not count: somebody who sends nonsense all day must not fill the state."""

QUESTION_CHARS, QUESTION_WHY_CHARS = 1_000, 500
QUESTION_CHOICES, CHOICE_CHARS = 10, 100
"""Of an agent's question, why it matters, and its choices: what a person reads at once in the Web UI or a message."""

ASSUMPTION_CHARS = 500
ASSUMPTION_PART_CHARS = (160, 200, 120)
"""Of what one turn assumed, all of it together; and of one question, what was assumed, and why: each one sentence."""

ASSUMPTIONS_KEPT = 40
"""In a delivery's state and its pull request: 20 KB. An agent that assumes more has not understood the request."""

KEPT_BYTES = 64 * 1024
"""Of a text handed in for a delivery, such as an edited plan: as much as a request or a plan sent along with one."""

DECISION_ACCEPTED = timedelta(seconds=5)
"""A worker takes an update within milliseconds; after this long there is none, and a signal waits for the next one."""

CANCEL_TURN_S = 120.0
"""For the turn that runs to end before a cancellation: most take less than a minute. Later its tools are ended."""

NEW_QUESTION_S = 30.0
"""For what follows a decision to be put: the edited plan for approval, within milliseconds where a worker lives."""

ATTACHES = 200
"""Times one run takes update `attach` under different ids: a run takes 2,000 updates, and decisions need room."""

BLOCK_USD = 1.0
"""What a delivery reserves of a fleet's budget at a time: about twenty turns, so that it seldom asks (holes.md H28)."""

BLOCKS_A_DAY = 300
"""Into which all budgets of a day are cut at most: a block costs about 9 events, a day may have 5,000."""

BLOCK_LEAST_USD = 0.10
"""The least that is worth asking for; what is left of a day below it is not handed out."""

BLOCK_AHEAD = 0.25
"""Of a block, left when the next one is asked for: a turn takes seconds, an answer milliseconds."""

LEASE = timedelta(hours=1)
"""A delivery holds what it has reserved this long without being heard of. Longer than nearly every turn."""

TREASURY_TICK = timedelta(minutes=30)
"""How often the Treasury looks for reservations that are overdue, while there are any: 5 events each time."""

LEASE_RECORDS, LEASE_RECORDS_FOR = 2_000, timedelta(days=2)
"""Of deliveries that hold nothing any more: half a megabyte, a quarter of what a new run can be given."""

TREASURY_HEARD = 100
"""Ids of additions: the same one that comes again, comes within seconds."""

GRANT_SOON = timedelta(seconds=10)
"""The answer takes a fraction of a second; only what takes longer is shown as waiting."""

GRANT_AGAIN, GRANT_AGAIN_MOST = timedelta(minutes=1), timedelta(hours=1)
"""When a delivery asks again that has not heard anything, first and at last: there may be no Treasury."""

TREASURY_SEEN = timedelta(minutes=1)
"""How often a worker looks whether the Treasury runs: who ended it meant today's reservations, not every delivery."""

LAST_TABLE_TIME, LAST_TABLE_TRY = timedelta(minutes=10), timedelta(seconds=30)
"""To read the table of a run that was ended: a worker replays it, in a second or two. Deliveries wait that long."""

TAKES_UP_TRIES, TAKES_UP_PAUSE_S = 50, 0.1
"""Until it has read that table, for whoever wants to see it: one a second where a worker lives."""

LAST_TABLE_RUNS = 5
"""Runs that were ended before they had read their table themselves: somebody is clearing up."""

UNTOLD_WITHIN, UNTOLD_SHOWN = timedelta(days=7), 3
"""Notices that reached nobody, in `perdure doctor`: the newest of a week show what is wrong with an address."""

UNTOLD_ANSWER = timedelta(seconds=5)
"""For each answer of a server that was just seen to answer."""

NOTIFY_TRIED, NOTIFY_TRIED_LOOK_S = timedelta(seconds=20), 0.2
"""`perdure doctor --notify` waits for the answers of one try (NOTIFY_ATTEMPT_S), which all have begun at once."""

DETAILS_BYTES = 20_000
"""Of a delivery's current details: what Temporal documents as their limit. The Web UI carries them in an address."""

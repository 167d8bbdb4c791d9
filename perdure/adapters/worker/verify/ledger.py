"""Journal and spend log, counted again, and held against the turns that are in the vault."""

from __future__ import annotations

from collections import Counter

from perdure.adapters.worker.host import Host
from perdure.models.ledger import Usage
from perdure.models.verify import LedgerFact

_NAMED = 5


def ledger(host: Host, delivery: str, turns: list[tuple[str, Usage]], deaths: tuple[str, ...]) -> LedgerFact:
    """`turns`: name and usage of those that happened. `deaths`: attempts that were reported as died."""
    log, survived = host.spend(delivery), host.receipt(delivery)
    settled = log.settled()
    # A reply is settled with what its turn says it cost: each turn must find one of its own, whatever was paid besides.
    left = Counter(usage.model_dump_json() for usage in settled)
    unpaid = []
    for name, usage in turns:
        if left[line := usage.model_dump_json()] > 0:
            left[line] -= 1
        else:
            unpaid.append(name)
    # An attempt is `<run>/<activity id>/<attempt>/<worker>`; a rewound run's history tells of the run before it, too.
    begun = {"/".join(attempt.split("/")[1:3]) for attempt in host.journal(delivery).attempts()}
    return LedgerFact(
        worker_deaths=survived.worker_deaths,
        turns_redone=survived.turns_redone,
        replies_paid_twice=survived.replies_paid_twice,
        replies_cut=survived.replies_cut,
        settled=len(settled),
        spend=log.total(),
        kept=sum((usage for _, usage in turns), Usage()),
        turns=len(turns),
        unpaid=tuple(unpaid[:_NAMED]),
        unheard=tuple([attempt for attempt in deaths if attempt not in begun][:_NAMED]),
    )

"""Rulesets: the rules that hold for a branch, and who stands above them."""

from __future__ import annotations

from fnmatch import fnmatchcase

from tests.twins.github.answers import Reply, not_found
from tests.twins.github.call import Call


def of_branch(call: Call) -> Reply:
    """Of a branch that need not exist."""
    source = {"ruleset_source_type": "Repository", "ruleset_source": call.where.full_name}
    return call.page(
        [
            {**rule, **source, "ruleset_id": ruleset.id}
            for ruleset in call.where.rulesets
            if any(fnmatchcase(call.path["branch"], pattern) for pattern in ruleset.patterns)
            for rule in ruleset.rules
        ]
    )


def get(call: Call) -> Reply:
    found = next((each for each in call.where.rulesets if each.id == call.path["ruleset_id"]), None)
    if found is None:
        raise not_found()
    above = call.actor is not None and call.who.login.lower() in found.bypass
    return Reply(
        200,
        {
            "id": found.id,
            "name": found.name,
            "target": "branch",
            "source_type": "Repository",
            "source": call.where.full_name,
            "enforcement": "active",
            "current_user_can_bypass": "always" if above else "never",
            "conditions": {"ref_name": {"include": [f"refs/heads/{each}" for each in found.patterns], "exclude": []}},
            "rules": list(found.rules),
        },
    )

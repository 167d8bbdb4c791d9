"""Rules of a repository on GitHub (its rulesets) that would refuse a delivery's push: fetched and checked before any
money is spent, as part of `github.forge.check_access`.

Only rules for the delivery's own branches are checked: those of the base stand before a merge, which is for people.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from perdure.adapters.forges.github.errors import status_error
from perdure.adapters.git.command import IDENTITY
from perdure.adapters.system.programs import run_program
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from perdure.text import one_line

if TYPE_CHECKING:
    from github.Repository import Repository

FORGE_PATTERN_S = 2.0
"""The time limit for one pattern of a repository's rules against one name: it takes a tenth of a second, but a stranger
wrote the pattern."""


_RULES_PER_PAGE, _MAX_RULES = 100, 1000
"""Rules in one answer, and of one branch; nobody has that many."""

_REFUSES_CREATION = {"creation": "nobody but those who may bypass it creates such a branch"}
_REFUSES_UPDATE = {
    "update": "nobody but those who may bypass it changes such a branch",
    "pull_request": "what is on this branch must come by a pull request",
}
_REFUSES_PUSH = {
    "required_signatures": "commits need a verified signature, and Perdure's have none",
    "merge_queue": "this branch changes only through a merge queue",
    "required_deployments": "what is pushed there must have been deployed before",
    "code_scanning": "what is pushed there must have been scanned before",
}
_REFUSES_UNLESS_EXEMPT = {
    "required_status_checks": "checks must have passed on what is pushed there",
    "workflows": "workflows must have passed on what is pushed there",
}
"""Rules whose parameter `do_not_enforce_on_create` exempts a branch that does not exist yet."""

_PATTERNS = {
    "branch_name_pattern": "its name",
    "commit_author_email_pattern": "the author's address of its commits",
    "committer_email_pattern": "the committer's address of its commits",
}
_KNOWN_AT_PUSH = {
    "commit_message_pattern": "the messages of commits",
    "file_path_restriction": "the paths of files",
    "max_file_path_length": "the length of paths",
    "file_extension_restriction": "the extensions of files",
    "max_file_size": "the size of files",
}
"""Rules about commits and files that are not written yet."""

_BYPASS_MODES = ("always", "exempt")
"""Values that let our account push all the same; `pull_requests_only` lets it merge, not push."""

_MATCH_PROGRAM = "import re, sys; sys.exit(0 if re.search(sys.argv[1], sys.argv[2]) else 3)"


_ANOTHER_NAME = "set [git] branch to a name that it does not hold for"


def check_rules(repository: Repository, branches: Sequence[str], remedy: str = _ANOTHER_NAME) -> list[str]:
    """Fetch the rules for these branches and return notes: rules that may refuse a push, of which only the push will
    tell, and branches that would be refused while another would not.

    Raises ForgeRefused when every one of `branches` would be refused, with the first rule that does so. Rules that our
    account may bypass do not count. `remedy`: what to do instead of changing the rule.
    """
    refusals: dict[str, ForgeRefused] = {}
    notes: list[str] = []
    rulesets = _RulesetBypasses(repository)
    for branch in dict.fromkeys(branches):
        rules = _fetch_rules(repository, branch)
        is_new = bool(rules) and not _branch_exists(repository, branch)
        for rule in rules:
            reason = _refusal_reason(rule, branch, is_new)
            if reason is not None and not rulesets.is_bypassed(rule):
                refusals.setdefault(branch, _refusal_error(repository, branch, rule, reason, remedy))
            elif reason is None and (note := _rule_note(rule, branch)) and not rulesets.is_bypassed(rule):
                notes.append(note)
    if refusals and len(refusals) == len(set(branches)):
        raise next(iter(refusals.values()))
    return [*(error.what for error in refusals.values()), *dict.fromkeys(notes)]


def _refusal_reason(rule: Mapping[str, Any], branch: str, is_new: bool) -> str | None:
    """Return the reason for which a rule would refuse our push to the branch; None when it would not, or when that
    cannot be known yet."""
    kind, params = rule.get("type"), rule.get("parameters") or {}
    if kind in _PATTERNS:
        return (
            f"{_PATTERNS[kind]} {_requirement(params)}"
            if _fits_pattern(params, _checked_name(kind, branch)) is False
            else None
        )
    if kind in _REFUSES_UNLESS_EXEMPT:
        return None if is_new and params.get("do_not_enforce_on_create") else _REFUSES_UNLESS_EXEMPT[kind]
    return ((_REFUSES_CREATION if is_new else _REFUSES_UPDATE) | _REFUSES_PUSH).get(str(kind))


def _rule_note(rule: Mapping[str, Any], branch: str) -> str | None:
    """Return a note about a rule of which only the push will show whether it is kept; None for any other rule."""
    kind, params = rule.get("type"), rule.get("parameters") or {}
    if kind in _KNOWN_AT_PUSH:
        requirement = f" {_requirement(params)}: say so in the request" if kind == "commit_message_pattern" else ""
        return f"a rule for {branch} is about {_KNOWN_AT_PUSH[kind]}{requirement}; the push will show if it is kept"
    if kind in _PATTERNS and _fits_pattern(params, _checked_name(kind, branch)) is None:
        return f"a rule for {branch}, {_PATTERNS[kind]} {_requirement(params)}, could not be tried; the push will show"
    return None


def _checked_name(kind: str, branch: str) -> str:
    """Return what a rule of this kind compares with its pattern: the branch's name, or the mail address of Perdure's
    commits."""
    if kind == "branch_name_pattern":
        return branch
    return IDENTITY["GIT_AUTHOR_EMAIL" if kind == "commit_author_email_pattern" else "GIT_COMMITTER_EMAIL"]


def _requirement(params: Mapping[str, Any]) -> str:
    """Return what a rule's pattern demands, in words: `must not match ^x`."""
    verbs = {"starts_with": "begin with", "ends_with": "end with", "contains": "contain"}
    verb = verbs.get(str(params.get("operator")), "match")
    return f"must {'not ' if params.get('negate') else ''}{verb} {one_line(str(params.get('pattern') or ''))}"


def _fits_pattern(params: Mapping[str, Any], text: str) -> bool | None:
    """Return True when a text keeps to the pattern of a rule, False when it does not, None when that cannot be told."""
    pattern = str(params.get("pattern") or "")
    match params.get("operator"):
        case "starts_with":
            matches: bool | None = text.startswith(pattern)
        case "ends_with":
            matches = text.endswith(pattern)
        case "contains":
            matches = pattern in text
        case "regex":
            matches = _matches_regex(pattern, text)
        case _:
            matches = None
    return matches if matches is None else matches is not bool(params.get("negate"))


def _matches_regex(pattern: str, text: str) -> bool | None:
    """Return True when a regular expression is found in a text; None when Python cannot tell.

    Runs in a process of its own with a time limit: GitHub's engine takes patterns without harm that Python's could
    think about for ever. None for one of these, and for syntax that only GitHub's engine knows.
    """
    if re.search(r"\[\[:|\\[pPQCzX]", pattern):
        return None
    command = [sys.executable, "-I", "-S", "-c", _MATCH_PROGRAM, pattern, text]
    code = run_program(command, {}, FORGE_PATTERN_S).code
    return {0: True, 3: False}.get(code) if code is not None else None


@dataclass
class _RulesetBypasses:
    """The rulesets of a repository that our account may bypass, each asked of GitHub once."""

    repository: Repository
    _bypassed_by_id: dict[int, bool] = field(default_factory=dict)

    def is_bypassed(self, rule: Mapping[str, Any]) -> bool:
        """Return True when our account may bypass the ruleset that a rule belongs to; False also when our account
        cannot see that."""
        number = rule.get("ruleset_id")
        if not isinstance(number, int):
            return False
        if number not in self._bypassed_by_id:
            ruleset = _get_json(self.repository, f"/rulesets/{number}")
            self._bypassed_by_id[number] = (
                isinstance(ruleset, dict) and ruleset.get("current_user_can_bypass") in _BYPASS_MODES
            )
        return self._bypassed_by_id[number]


def _fetch_rules(repository: Repository, branch: str) -> list[Mapping[str, Any]]:
    """Fetch the rules for a branch from GitHub, at most _MAX_RULES; empty where there are none, or the server has no
    rulesets (older ones), or not for this repository's plan. Raises what PyGithub raises."""
    rules: list[Mapping[str, Any]] = []
    while len(rules) % _RULES_PER_PAGE == 0 and len(rules) < _MAX_RULES:
        query = f"?per_page={_RULES_PER_PAGE}&page={len(rules) // _RULES_PER_PAGE + 1}"
        page_rules = _get_json(repository, f"/rules/branches/{quote(branch, safe='')}{query}") or []
        if not page_rules:
            break
        rules += page_rules
    return rules


def _branch_exists(repository: Repository, branch: str) -> bool:
    """Return True when GitHub has the branch."""
    return _get_json(repository, f"/branches/{quote(branch, safe='')}") is not None


def _get_json(repository: Repository, suffix: str) -> Any:
    """Fetch the JSON at the repository's API address with `suffix` behind it; None where GitHub answers that there is
    no such thing for us (403, 404). Raises what PyGithub raises."""
    from github import GithubException

    try:
        return repository.requester.requestJsonAndCheck("GET", f"{repository.url}{suffix}")[1]
    except GithubException as error:
        forge_error = status_error(error.status, error.data, error.headers or {}, "", "")
        if isinstance(forge_error, ForgeUnavailable) or error.status not in (403, 404):
            raise
        return None


def _refusal_error(
    repository: Repository, branch: str, rule: Mapping[str, Any], reason: str, remedy: str
) -> ForgeRefused:
    """Return the error for a push that a rule would refuse. `reason`: why; `remedy`: what to do instead of changing the
    rule."""
    whose = f" of {one_line(str(rule['ruleset_source']))}" if rule.get("ruleset_source") else ""
    fix = f"let the token's account bypass the ruleset, or {remedy}"
    return ForgeRefused(
        f"a rule{whose} ({rule.get('type')}) would refuse the push of {branch}: {reason}",
        where=f"{repository.html_url}/rules?ref={quote(f'refs/heads/{branch}', safe='')}",
        fix=fix,
    )

"""Rules of a repository (its rulesets) that would refuse a delivery's push, asked for before any money is spent.

Only rules of the delivery's own branches are asked for: those of the base stand before a merge, which is people's.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from perdure.adapters.forges.github.errors import of_status
from perdure.adapters.git.command import IDENTITY
from perdure.models.errors import ForgeRefused, ForgeUnavailable

if TYPE_CHECKING:
    from github.Repository import Repository

FORGE_PATTERN_S = 2.0
"""For one pattern of a repository's rules against one name: a tenth of a second's work, and a stranger's pattern."""


_PAGE, _MOST = 100, 1000
"""Rules in one answer, and of one branch; nobody has that many."""

_NEW = {"creation": "nobody but those who may bypass it creates such a branch"}
_OLD = {
    "update": "nobody but those who may bypass it changes such a branch",
    "pull_request": "what is on this branch must come by a pull request",
}
_ANY = {
    "required_signatures": "commits need a verified signature, and Perdure's have none",
    "merge_queue": "this branch changes only through a merge queue",
    "required_deployments": "what is pushed there must have been deployed before",
    "code_scanning": "what is pushed there must have been scanned before",
}
_UNLESS_NEW = {
    "required_status_checks": "checks must have passed on what is pushed there",
    "workflows": "workflows must have passed on what is pushed there",
}
"""`do_not_enforce_on_create` excepts a branch that is not there yet."""

_PATTERNS = {
    "branch_name_pattern": "its name",
    "commit_author_email_pattern": "the author's address of its commits",
    "committer_email_pattern": "the committer's address of its commits",
}
_LATER = {
    "commit_message_pattern": "the messages of commits",
    "file_path_restriction": "the paths of files",
    "max_file_path_length": "the length of paths",
    "file_extension_restriction": "the extensions of files",
    "max_file_size": "the size of files",
}
"""About what is not written yet."""

_BYPASSED = ("always", "exempt")
"""`pull_requests_only` holds for merging one, not for a push."""

_MATCH = "import re, sys; sys.exit(0 if re.search(sys.argv[1], sys.argv[2]) else 3)"


_ANOTHER_NAME = "set [git] branch to a name that it does not hold for"


def check_rules(repository: Repository, branches: Sequence[str], instead: str = _ANOTHER_NAME) -> list[str]:
    """Notes about rules of which only the push will tell. ForgeRefused when every one of `branches` would be refused:
    it names the first rule that does so, and what to do `instead` of changing it."""
    refused: dict[str, ForgeRefused] = {}
    notes: list[str] = []
    rulesets = _Rulesets(repository)
    for branch in dict.fromkeys(branches):
        rules = _rules(repository, branch)
        new = bool(rules) and not _is_there(repository, branch)
        for rule in rules:
            against = _against(rule, branch, new)
            if against is not None and not rulesets.bypassed(rule):
                refused.setdefault(branch, _refusal(repository, branch, rule, against, instead))
            elif against is None and (note := _note(rule, branch)) and not rulesets.bypassed(rule):
                notes.append(note)
    if refused and len(refused) == len(set(branches)):
        raise next(iter(refused.values()))
    return [*(error.what for error in refused.values()), *dict.fromkeys(notes)]


def _against(rule: Mapping[str, Any], branch: str, new: bool) -> str | None:
    """The reason for which the rule would refuse our push; None when it would not, or nobody can know yet."""
    kind, given = rule.get("type"), rule.get("parameters") or {}
    if kind in _PATTERNS:
        return f"{_PATTERNS[kind]} {_asked(given)}" if _fits(given, _subject(kind, branch)) is False else None
    if kind in _UNLESS_NEW:
        return None if new and given.get("do_not_enforce_on_create") else _UNLESS_NEW[kind]
    return ((_NEW if new else _OLD) | _ANY).get(str(kind))


def _note(rule: Mapping[str, Any], branch: str) -> str | None:
    kind, given = rule.get("type"), rule.get("parameters") or {}
    if kind in _LATER:
        asks = f" {_asked(given)}: say so in the request" if kind == "commit_message_pattern" else ""
        return f"a rule for {branch} is about {_LATER[kind]}{asks}; the push will show if it is kept"
    if kind in _PATTERNS and _fits(given, _subject(kind, branch)) is None:
        return f"a rule for {branch}, {_PATTERNS[kind]} {_asked(given)}, could not be tried; the push will show"
    return None


def _subject(kind: str, branch: str) -> str:
    if kind == "branch_name_pattern":
        return branch
    return IDENTITY["GIT_AUTHOR_EMAIL" if kind == "commit_author_email_pattern" else "GIT_COMMITTER_EMAIL"]


def _asked(given: Mapping[str, Any]) -> str:
    """`must not match ^x`, say."""
    how = {"starts_with": "begin with", "ends_with": "end with", "contains": "contain"}
    verb = how.get(str(given.get("operator")), "match")
    return f"must {'not ' if given.get('negate') else ''}{verb} {_line(given.get('pattern'))}"


def _fits(given: Mapping[str, Any], text: str) -> bool | None:
    """True when a text keeps to a pattern; None when that cannot be told."""
    pattern = str(given.get("pattern") or "")
    match given.get("operator"):
        case "starts_with":
            found: bool | None = text.startswith(pattern)
        case "ends_with":
            found = text.endswith(pattern)
        case "contains":
            found = pattern in text
        case "regex":
            found = _matches(pattern, text)
        case _:
            found = None
    return found if found is None else found is not bool(given.get("negate"))


def _matches(pattern: str, text: str) -> bool | None:
    """In a process of its own: GitHub's engine takes patterns without harm that Python's could think about for ever.
    None for one of which this is so, and for words that only GitHub's engine knows."""
    if re.search(r"\[\[:|\\[pPQCzX]", pattern):
        return None
    try:
        command = [sys.executable, "-I", "-S", "-c", _MATCH, pattern, text]
        done = subprocess.run(command, capture_output=True, timeout=FORGE_PATTERN_S, check=False, env={})
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return {0: True, 3: False}.get(done.returncode)


@dataclass
class _Rulesets:
    repository: Repository
    _known: dict[int, bool] = field(default_factory=dict)

    def bypassed(self, rule: Mapping[str, Any]) -> bool:
        """True when our account stands above the rule; one that cannot see that does not."""
        number = rule.get("ruleset_id")
        if not isinstance(number, int):
            return False
        if number not in self._known:
            said = _ask(self.repository, f"/rulesets/{number}")
            self._known[number] = isinstance(said, dict) and said.get("current_user_can_bypass") in _BYPASSED
        return self._known[number]


def _rules(repository: Repository, branch: str) -> list[Mapping[str, Any]]:
    """All of them; none where this GitHub has no rulesets (older servers), or not for this repository's plan."""
    found: list[Mapping[str, Any]] = []
    while len(found) % _PAGE == 0 and len(found) < _MOST:
        page = f"?per_page={_PAGE}&page={len(found) // _PAGE + 1}"
        more = _ask(repository, f"/rules/branches/{quote(branch, safe='')}{page}") or []
        if not more:
            break
        found += more
    return found


def _is_there(repository: Repository, branch: str) -> bool:
    return _ask(repository, f"/branches/{quote(branch, safe='')}") is not None


def _ask(repository: Repository, rest: str) -> Any:
    """The answer's JSON, None where there is no such thing for us."""
    from github import GithubException

    try:
        return repository.requester.requestJsonAndCheck("GET", f"{repository.url}{rest}")[1]
    except GithubException as error:
        meaning = of_status(error.status, error.data, error.headers or {}, "", "")
        if isinstance(meaning, ForgeUnavailable) or error.status not in (403, 404):
            raise
        return None


def _refusal(repository: Repository, branch: str, rule: Mapping[str, Any], against: str, instead: str) -> ForgeRefused:
    whose = f" of {_line(rule['ruleset_source'])}" if rule.get("ruleset_source") else ""
    fix = f"let the token's account bypass the ruleset, or {instead}"
    return ForgeRefused(
        f"a rule{whose} ({rule.get('type')}) would refuse the push of {branch}: {against}",
        where=f"{repository.html_url}/rules?ref={quote(f'refs/heads/{branch}', safe='')}",
        fix=fix,
    )


def _line(text: Any) -> str:
    return " ".join(str(text or "").split())[:200]

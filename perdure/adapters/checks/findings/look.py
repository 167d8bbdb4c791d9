"""Everything the engine itself finds in the change from the base to one commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.adapters.checks.findings import contents
from perdure.adapters.checks.findings.globs import covering
from perdure.adapters.checks.findings.leaked import leaked, shown
from perdure.adapters.checks.tamper import Files, hints
from perdure.adapters.git import patch
from perdure.adapters.git.patch import ChangedPath, Hunk
from perdure.adapters.git.repository import Repository
from perdure.models.contract import Contract
from perdure.models.report import Finding, FindingRule, Findings, Severity, TamperingHit

FINDINGS_MOST = 50
"""Listed for one change, the worst first; the others are counted. Nobody mends more in one round."""


_RULES = tuple(FindingRule)
_SEVERITIES = tuple(Severity)


@dataclass(frozen=True)
class EngineFindings:
    """The findings. `counts` are of all findings, those too that are not listed; `secrets` must not be pushed."""

    findings: Findings
    counts: Counter[Severity]
    secrets: int


def look(repository: Repository, contract: Contract, commit: str, more: Sequence[Finding] = ()) -> EngineFindings:
    """Look at a change from git's objects alone. Whatever is in it, this ends, and no secret is in the result.

    more  what runs have found

    A branch that is behind its base is compared with where it left it, as its pull request will be.
    """
    base = repository.merge_base(contract.base_sha, commit)
    changed = patch.changed_paths(repository, base, commit)
    binaries = patch.binary_paths(repository, base, commit)
    secrets, values = leaked(repository, contract, base, commit, changed, binaries)
    hinted = hints(*Files.pair(repository, contract.base_sha, commit), contract.config.test or ())
    found = [
        *secrets,
        *protected(contract, changed),
        *conflicts(repository, base, commit, changed, binaries),
        *contents.binary_files(changed, binaries),
        *contents.links(repository, changed),
        *contents.submodules(changed),
        *contents.size(repository, base, commit),
        *more,
        *_hints(hinted.places),
    ]
    files, added, deleted = repository.diff_stat(base, commit)
    findings = Findings(
        base=base,
        head=commit,
        findings=_listed(found),
        changed_tests=hinted.changed_tests,
        files=files,
        added=added,
        deleted=deleted,
    )
    blocking = sum(one.severity is Severity.BLOCKER for one in secrets)
    return EngineFindings(_without(findings, values), Counter(one.severity for one in found), blocking)


def protected(contract: Contract, changed: Iterable[ChangedPath]) -> list[Finding]:
    """Paths that `[protect] paths` covers, whatever happened to them: of a rename both ends count."""
    found = []
    for one in changed:
        pattern = covering(one.path, contract.config.protect.paths)
        if pattern is None and contents.is_link(one):  # a link in the place of a directory stands for what is in it
            pattern = covering(f"{one.path}/.", contract.config.protect.paths)
        if pattern is None:
            continue
        how = "deleted" if not one.exists else "changed" if one.was_mode.strip("0") else "added"
        found.append(
            Finding(
                rule=FindingRule.PROTECTED_PATH,
                severity=Severity.BLOCKER,
                title=f"a protected path is {how}",
                description=f"[protect] paths has {pattern!r}.",
                file=shown(one.path),
                suggestion=f"Undo the change to this file. Only its owner can allow it: without this pattern in "
                f"[protect] paths of perdure.toml on {contract.base}, or of the file given with --config.",
            )
        )
    return found


def _hints(places: Sequence[TamperingHit]) -> list[Finding]:
    """Never a verdict: those come from what ran."""
    return [
        Finding(
            rule=FindingRule.TAMPERING,
            severity=Severity.SKIPPABLE,
            title=one.title,
            description=one.evidence,
            file=one.file,
            line=one.line,
            suggestion="Look whether tests say less for it.",
        )
        for one in places
    ]


def _listed(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """The worst first, at most FINDINGS_MOST; the last one then says how many are left out."""
    ordered = sorted(found, key=_rank)
    if len(ordered) <= FINDINGS_MOST:
        return tuple(ordered)
    kept, left = ordered[: FINDINGS_MOST - 1], ordered[FINDINGS_MOST - 1 :]
    counts = Counter(one.severity.replace("_", " ") for one in left)
    words = ", ".join(f"{number} {severity}" for severity, number in counts.items())
    more = Finding(rule=left[0].rule, severity=left[0].severity, title=f"{len(left)} more findings: {words}")
    return (*kept, more)


def _rank(one: Finding) -> tuple[int, int, str, bool, int]:
    """Within a file by line; what has no line comes last."""
    return _SEVERITIES.index(one.severity), _RULES.index(one.rule), one.file, one.line is None, one.line or 0


def _without(findings: Findings, values: Iterable[str]) -> Findings:
    """No secret in any word: evidence, changed tests and names of files can quote one."""
    ordered = sorted(values, key=len, reverse=True)

    def clean(text: str) -> str:
        for value in ordered:
            text = text.replace(value, "[secret]")
        return text

    cleaned = [
        one.model_copy(update={name: clean(getattr(one, name)) for name in ("title", "description", "file")})
        for one in findings.findings
    ]
    tests = [
        one.model_copy(update={name: clean(getattr(one, name)) for name in ("name", "file", "before", "after")})
        for one in findings.changed_tests
    ]
    return findings.model_copy(update={"findings": tuple(cleaned), "changed_tests": tuple(tests)})


_BEGINS, _BETWEEN, _ENDS = b"<<<<<<< ", b"=======", b">>>>>>> "


def conflicts(
    repository: Repository, base: str, head: str, changed: Sequence[ChangedPath], binaries: set[str]
) -> list[Finding]:
    """Files to which the change has added all three marks, in their order, each at the beginning of a line."""
    text = [one for one in changed if one.path not in binaries]
    return [
        Finding(
            rule=FindingRule.CONFLICT,
            severity=Severity.BLOCKER,
            title="marks of a conflict are left",
            description="The lines between them are of two sides that were never brought together.",
            file=shown(path),
            line=line,
            suggestion="Make one of both sides, and take out every mark.",
        )
        for path, hunks in patch.read_hunks(repository, base, head, text)
        if (line := _begins(hunks)) is not None
    ]


def _begins(hunks: Iterable[Hunk]) -> int | None:
    """The line of the first conflict whose three marks the change has added; what lies between may be older."""
    first: int | None = None
    between = False
    for hunk in hunks:
        if not any(b"+" + mark in hunk.body for mark in (_BEGINS, _BETWEEN, _ENDS)):
            continue
        for line in hunk.new_lines():
            if not line.added:
                continue
            if line.data.startswith(_BEGINS):
                first, between = line.number, False
            elif first is not None and line.data.rstrip(b"\r") == _BETWEEN:
                between = True
            elif first is not None and between and line.data.startswith(_ENDS):
                return first
    return None

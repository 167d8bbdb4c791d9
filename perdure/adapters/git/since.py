"""The words for an agent about what landed since its delivery began, and where that meets its own change."""

from __future__ import annotations

from perdure.adapters.git.landing import LANDED, OURS, Merged
from perdure.adapters.git.vault import Vault

SINCE_BYTES = 40_000
"""Of what landed, as a diff: ten thousand tokens, read once. What the conflicts are in comes first."""

_COMMITS, _PATHS, _TOLD = 100, 50, 100
"""Lines of each kind: beyond them nobody reads on."""


def since(vault: Vault, began: str, onto: str, branch: str, merged: Merged) -> str:
    """Conflicts, commits and diff between where the delivery began and where it stands now, at most SINCE_BYTES long
    and a few lists of lines. Words of commits are as their authors wrote them."""
    parts = [f"The change began on {began[:12]}. It stands on {onto[:12]} now, the newest commit of {branch}."]
    if merged.conflicts:
        parts.append(_conflicts(merged))
    log = ("log", "--reverse", f"--max-count={_COMMITS}", "--format=%h %s", "--end-of-options", onto, f"^{began}")
    commits = vault.git.run(*log).stdout.decode(errors="replace").splitlines()
    parts.append("Landed since:\n" + (_list([line[:200] for line in commits]) or "- nothing"))
    if diff := _diff(vault, began, onto, merged.conflicts):
        parts.append(diff)
    return "\n\n".join(parts) + "\n"


def _conflicts(merged: Merged) -> str:
    paths = [f"- {path[:200]}" for path in merged.conflicts[:_PATHS]]
    if (more := len(merged.conflicts) - _PATHS) > 0:
        paths.append(f"- and {more} more: search for the marks")
    marks = (
        f"Marks: `<<<<<<< {LANDED}` begins what landed, `|||||||` what both began from, `=======` this change, "
        f"`>>>>>>> {OURS}` ends it. A file without marks is there as git's words say."
    )
    return "\n".join(
        ["In conflict:", *paths, marks, "Git's words:", _list([line[:300] for line in merged.told[:_TOLD]])]
    )


def _diff(vault: Vault, began: str, onto: str, conflicts: tuple[str, ...]) -> str:
    """The landed change: files in conflict first, whole files only as far as there is room."""
    how = ("diff", "--no-ext-diff", "--no-textconv", "--no-renames", "-z", "--name-only", "--end-of-options")
    changed = vault.git.run(*how, began, onto).names
    ordered = sorted(changed, key=lambda path: path not in conflicts)
    room, shown, left = SINCE_BYTES, [], []
    for path in ordered[:_COMMITS]:
        text = _of_file(vault, began, onto, path) if room > 0 else ""
        if text and len(text) <= room:
            shown.append(text)
        else:
            left.append(path)
        room -= len(text)
    left += ordered[_COMMITS:]
    parts = ["".join(shown)] if shown else []
    if left:
        parts.append("Changed too, and not shown here:\n" + _list([path[:200] for path in left[:_COMMITS]]))
    return "\n".join(parts)


def _of_file(vault: Vault, began: str, onto: str, path: str) -> str:
    how = ("diff", "--no-ext-diff", "--no-textconv", "--no-renames", began, onto, "--", path)
    found = vault.git.run(*how, env={"GIT_LITERAL_PATHSPECS": "1"})
    return found.stdout.decode(errors="replace")


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)

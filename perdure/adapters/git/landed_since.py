"""The text for an agent about what landed since its delivery began, and where that meets its own change."""

from __future__ import annotations

from perdure.adapters.git.landing import LANDED, OURS, MergeResult
from perdure.adapters.git.vault import Vault

SINCE_BYTES = 40_000
"""The most characters of diff that are shown of what landed: ten thousand tokens, read once. Files in conflict come
first."""

_COMMITS, _PATHS, _MESSAGES = 100, 50, 100
"""The most lines of each kind: nobody reads on beyond them."""


def describe_landed(vault: Vault, base: str, onto: str, branch: str, merged: MergeResult) -> str:
    """Return a text about what landed between `base`, where the delivery began, and `onto`, where it stands now:
    conflicts, commits and diff, at most SINCE_BYTES long and a few lists of lines. Subjects of commits are as their
    authors wrote them."""
    parts = [f"The change began on {base[:12]}. It stands on {onto[:12]} now, the newest commit of {branch}."]
    if merged.conflicts:
        parts.append(_conflict_section(merged))
    log = ("log", "--reverse", f"--max-count={_COMMITS}", "--format=%h %s", "--end-of-options", onto, f"^{base}")
    commits = vault.git.execute(*log).stdout.decode(errors="replace").splitlines()
    parts.append("Landed since:\n" + (_bullet_list([line[:200] for line in commits]) or "- nothing"))
    if diff := _diff_section(vault, base, onto, merged.conflicts):
        parts.append(diff)
    return "\n\n".join(parts) + "\n"


def _conflict_section(merged: MergeResult) -> str:
    """Return the part about conflicts: the paths, what the marks in the files mean, and git's messages."""
    paths = [f"- {path[:200]}" for path in merged.conflicts[:_PATHS]]
    if (more := len(merged.conflicts) - _PATHS) > 0:
        paths.append(f"- and {more} more: search for the marks")
    marks = (
        f"Marks: `<<<<<<< {LANDED}` begins what landed, `|||||||` what both began from, `=======` this change, "
        f"`>>>>>>> {OURS}` ends it. A file without marks is there as git's words say."
    )
    return "\n".join(
        [
            "In conflict:",
            *paths,
            marks,
            "Git's words:",
            _bullet_list([line[:300] for line in merged.messages[:_MESSAGES]]),
        ]
    )


def _diff_section(vault: Vault, base: str, onto: str, conflicts: tuple[str, ...]) -> str:
    """Return the diffs of the files that landed, those in conflict first, each whole and only as far as SINCE_BYTES
    allows, and a list of the others; empty when nothing changed."""
    command = ("diff", "--no-ext-diff", "--no-textconv", "--no-renames", "-z", "--name-only", "--end-of-options")
    changed = vault.git.execute(*command, base, onto).names
    ordered = sorted(changed, key=lambda path: path not in conflicts)
    remaining, shown, omitted = SINCE_BYTES, [], []
    for path in ordered[:_COMMITS]:
        text = _file_diff(vault, base, onto, path) if remaining > 0 else ""
        if text and len(text) <= remaining:
            shown.append(text)
        else:
            omitted.append(path)
        remaining -= len(text)
    omitted += ordered[_COMMITS:]
    parts = ["".join(shown)] if shown else []
    if omitted:
        parts.append("Changed too, and not shown here:\n" + _bullet_list([path[:200] for path in omitted[:_COMMITS]]))
    return "\n".join(parts)


def _file_diff(vault: Vault, base: str, onto: str, path: str) -> str:
    """Return the diff of one file between two commits."""
    command = ("diff", "--no-ext-diff", "--no-textconv", "--no-renames", base, onto, "--", path)
    output = vault.git.execute(*command, env={"GIT_LITERAL_PATHSPECS": "1"})
    return output.stdout.decode(errors="replace")


def _bullet_list(lines: list[str]) -> str:
    """Return the lines as a Markdown list."""
    return "\n".join(f"- {line}" for line in lines)

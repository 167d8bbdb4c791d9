"""Landing: a delivery's change is merged onto a branch that others land on, and that branch, of the remote or of the
vault alone, is moved by compare-and-swap. Also a text for the agent about what landed meanwhile, and a prediction of
conflicts with other open deliveries. Used by activities and `git.integration`; when an item may land is decided
elsewhere."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.command import Git, GitError, redact
from perdure.adapters.git.patch import unified_diff
from perdure.adapters.git.publish import push_commit
from perdure.adapters.git.remote import remote_heads
from perdure.adapters.git.repository import RefMoved
from perdure.adapters.git.vault import BARE, Vault
from perdure.adapters.git.workspace import Workspace
from perdure.models.errors import Diverged, ForgeRefused, WorkspaceLost
from perdure.models.ids import branch_name
from perdure.text import escape_path, one_line, shorten

LANDED, OURS = "landed", "this-delivery"
"""The names of the two sides in the marks of a conflict and in git's messages about it."""

_SETTINGS = (
    "merge.conflictStyle=diff3",  # without what both began from nobody can tell what was changed and what was left
    "merge.renames=true",
    "merge.directoryRenames=conflict",
    "merge.renameLimit=1000",  # beyond it renames are not looked for: a conflict more, and never a minute
)


@dataclass(frozen=True)
class MergeResult:
    """The result of merging two sides.

    tree       the merged files, with conflict marks where they could not be merged
    conflicts  all paths in conflict, in git's order
    messages   what git says about them, one line each
    """

    tree: str
    conflicts: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()


def fetch_integration_branch(vault: Vault, branch: str, landed: str = "") -> str:
    """Fetch an integration branch and return its commit.

    landed  a commit that must still be on it, itself or as the commit it became when the branch followed its base;
            empty: nothing has landed as far as anybody knows

    Raises ForgeRefused where the branch is not on the remote or has lost that commit, or the remote refuses;
    ForgeUnavailable when it does not answer.
    """
    tip = vault.fetch_branch(branch)
    if tip is None:
        raise missing_branch_error(vault, branch, landed)
    is_intact = not landed or (
        vault.has_commit(landed) and (vault.is_ancestor(landed, tip) or _landed_as_another(vault, landed, tip))
    )
    if not is_intact:
        raise ForgeRefused(
            f"branch {branch} was put back: it is at {tip[:12]}, without {landed[:12]}, which had landed",
            where=redact(vault.url),
            fix=f"nothing was overwritten; {_restore_advice(vault, branch, landed)}",
        )
    return tip


def _landed_as_another(vault: Vault, landed: str, tip: str) -> bool:
    """Return True where the backlog item that commit `landed` belongs to is below `tip` as another commit, with the
    same `Perdure-` trailers."""
    trailer_lines = vault.git.text(
        "log", "-1", "--format=%(trailers:only,unfold)", "--end-of-options", landed
    ).splitlines()
    trailers = dict(line.split(": ", 1) for line in trailer_lines if line.startswith("Perdure-"))
    return "Perdure-Item" in trailers and bool(find_landed(vault, landed, tip, trailers))


def find_landed(vault: Vault, base: str, tip: str, trailers: Mapping[str, str]) -> str:
    """Return the oldest commit that `tip` has and `base` has not, and that carries all these trailers; empty when there
    is none.

    Such a commit has landed before: whoever pushed it died before reporting it, or the delivery was rewound.
    """
    if base == tip:
        return ""
    log_format = "--format=%x00%H%n%(trailers:only,unfold)"
    listed = vault.git.execute("log", "--reverse", log_format, "--end-of-options", tip, f"^{base}")
    for entry in listed.stdout.decode(errors="replace").split("\0")[1:]:
        commit, *lines = entry.split("\n")
        if set(trailers.items()) <= {tuple(line.split(": ", 1)) for line in lines}:
            return commit
    return ""


def merge_change_onto(vault: Vault, base: str, onto: str, head: str) -> MergeResult:
    """Merge the change from `base` to `head` onto the commit `onto` and return the result, conflicts included. No ref
    is moved and no worktree touched; objects are written to the vault. Raises GitError when a commit is missing.

    That change alone: nothing else comes along of a history that `head` has and `onto` has not, and it does not matter
    how the two are related. Git 2.39 takes the merge base from history only, so it is shown a history of three commits.
    """
    if base == onto:
        return MergeResult(vault.tree_of(head))
    with tempfile.TemporaryDirectory(prefix="perdure-landing-") as scratch:
        scratch_git_dir = Path(scratch)
        (scratch_git_dir / "refs" / "heads").mkdir(parents=True)
        (scratch_git_dir / "HEAD").write_text("ref: refs/heads/none\n")
        (scratch_git_dir / "config").write_text(BARE)
        common_base = vault.objects.write_commit(vault.tree_of(base), (), "base", timestamp=0)
        for name, commit in ((LANDED, onto), (OURS, head)):
            side = vault.objects.write_commit(vault.tree_of(commit), (common_base,), name, timestamp=0)
            (scratch_git_dir / "refs" / "heads" / name).write_text(f"{side}\n")
        return _merge(Git(git_dir=scratch_git_dir, objects=vault.objects.path, settings=_SETTINGS), LANDED, OURS)


def conflicting_paths(vault: Vault, a: str, b: str) -> tuple[str, ...]:
    """Return the paths on which two open commits would conflict if both landed; takes 6 ms. Empty where none would, and
    where git cannot tell because one of them is not here."""
    try:
        return _merge(Git(git_dir=vault.path, settings=_SETTINGS), a, b).conflicts
    except GitError:
        return ()


def land_on_remote(vault: Vault, branch: str, onto: str, commit: str) -> str:
    """Move a branch of the remote from `onto` to its child `commit`, and return where it is now: at that commit, or at
    the one that somebody else has moved it to; then nothing was done. Safe to repeat.

    Raises ForgeRefused when the branch is gone, protected or the default branch; ForgeUnavailable when the remote does
    not answer; Diverged when `onto` is not the only parent of `commit`.
    """
    _require_child(vault, commit, onto)
    heads = remote_heads(vault.url, vault.keys)
    tip = heads.branches.get(branch)
    if branch == heads.default:
        raise ForgeRefused(f"{branch} is the default branch: nobody lands there", where=redact(vault.url))
    if tip is None:
        raise missing_branch_error(vault, branch, onto)
    if tip != onto:
        return tip
    try:
        push_commit(vault, vault.url, commit, branch, onto)
    except ForgeRefused:
        now = remote_heads(vault.url, vault.keys).branches.get(branch)
        if now is None or now == onto:
            raise
        return now  # somebody was faster, between the look and the push
    return commit


def land_in_vault(vault: Vault, branch: str, onto: str, commit: str) -> str:
    """Move a branch that only the vault has from `onto` to its child `commit`, and return where it is now: at that
    commit, or where somebody else has moved it; then nothing was done. Nothing is pushed.

    Takes the vault's lock. Raises Diverged when `onto` is not the only parent of `commit`; WorkspaceLost when the
    branch is gone.
    """
    _require_child(vault, commit, onto)
    ref = vault_branch_ref(branch)
    with vault.lock():
        vault.remove_stale_locks(ref)  # whoever moves it holds the vault's lock: one that is there is of a dead writer
        try:
            vault.move_ref(ref, commit, onto)
        except RefMoved:
            return vault_branch_head(vault, branch)
    return commit


def vault_branch_head(vault: Vault, branch: str) -> str:
    """Return the commit of a branch that only the vault has. Raises WorkspaceLost where the branch is gone."""
    tip = vault.read_ref(vault_branch_ref(branch))
    if tip is None:
        raise WorkspaceLost(f"branch {branch} is not in the vault any more", where=str(vault.path))
    return tip


def vault_branch_ref(branch: str) -> str:
    """Return the ref of a branch that only the vault has. It is kept as long as the delivery with whose key its name
    begins."""
    return f"refs/artifacts/{branch}"


def _require_child(vault: Vault, commit: str, onto: str) -> None:
    """Raise Diverged unless `onto` is the only parent of `commit`."""
    if vault.git.text("rev-list", "--parents", "-1", "--end-of-options", commit).split()[1:] != [onto]:
        raise Diverged(f"{commit[:12]} does not follow {onto[:12]}: it was not made to land there")


def _merge(git: Git, a: str, b: str) -> MergeResult:
    """Merge two commits with `git merge-tree`, which writes objects and moves nothing, and return the result. Raises
    GitError where git cannot tell, because one of them is missing."""
    command = ("merge-tree", "--write-tree", "-z", "--name-only", "--allow-unrelated-histories")
    output = git.execute(*command, a, b, ok=(0, 1))
    if not output.stdout:  # git 2.39 ends as with a conflict where one of them is not here
        raise GitError([*command, a, b], output.returncode, output.stderr)
    (tree, *paths), message_fields = _split_at_empty(output.stdout.split(b"\0"))
    if output.returncode == 0:
        return MergeResult(tree.decode())
    return MergeResult(
        tree.decode(),
        tuple(path.decode(errors="surrogateescape") for path in paths),
        _conflict_messages(message_fields),
    )


def _split_at_empty(parts: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Split the output of merge-tree at its first empty field: first the tree and the paths; then the messages, each of
    them a number of paths, the paths, its kind and its text."""
    end = parts.index(b"")
    return parts[:end], parts[end + 1 :]


def _conflict_messages(parts: list[bytes]) -> tuple[str, ...]:
    """Return the text of each CONFLICT message in these fields of merge-tree's output, as one line, without
    repetitions."""
    texts, position = [], 0
    while position < len(parts) and parts[position].strip().isdigit():
        position += int(parts[position]) + 1
        kind, text = parts[position], parts[position + 1]
        if kind.startswith(b"CONFLICT"):
            texts.append(" ".join(text.decode(errors="replace").split()))
        position += 2
    return tuple(dict.fromkeys(texts))


def missing_branch_error(vault: Vault, branch: str, landed: str) -> ForgeRefused:
    """Return the error for a branch that somebody has removed from the remote. `landed` is the commit that was on it;
    empty when nothing is known."""
    fix = _restore_advice(vault, branch, landed) if landed else f"make {branch} again, then retry"
    return ForgeRefused(f"branch {branch} is not on the remote any more", where=redact(vault.url), fix=fix)


def _restore_advice(vault: Vault, branch: str, landed: str) -> str:
    """Return the advice to push a landed commit back, with the command on a line of its own, to be pasted. It uses no
    force: what others pushed there stays."""
    command = shlex.join(
        ["git", "-C", str(vault.path), "push", redact(vault.url), f"{landed[:12]}:refs/heads/{branch}"]
    )
    return f"bring {landed[:12]} back, then retry:\n{command}"


SINCE_BYTES = 40_000
"""The most characters of diff that are shown of what landed: ten thousand tokens, read once. Files in conflict come
first."""

_COMMITS, _PATHS, _MESSAGES = 100, 50, 100
"""The most lines of each kind: nobody reads on beyond them."""


def describe_landed(vault: Vault, base: str, onto: str, branch: str, merged: MergeResult) -> str:
    """Return a text for an agent about what landed between `base`, where the delivery began, and `onto`, where it
    stands now: conflicts, commits, and a diff of at most SINCE_BYTES characters.

    Every list has at most some hundred lines. Subjects of commits are as their authors wrote them.
    """
    parts = [f"The change began on {base[:12]}. It stands on {onto[:12]} now, the newest commit of {branch}."]
    if merged.conflicts:
        parts.append(_conflict_section(merged))
    log = ("log", "--reverse", f"--max-count={_COMMITS}", "--format=%h %s", "--end-of-options", onto, f"^{base}")
    commits = [one_line(line) for line in vault.git.execute(*log).lines]
    parts.append("Landed since:\n" + (_bullet_list(commits) or "- nothing"))
    if diff := _diff_section(vault, base, onto, merged.conflicts):
        parts.append(diff)
    return "\n\n".join(parts) + "\n"


def _conflict_section(merged: MergeResult) -> str:
    """Return the part about conflicts: the paths, what the marks in the files mean, and git's messages."""
    paths = [f"- {shorten(escape_path(path), 200)}" for path in merged.conflicts[:_PATHS]]
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
    """Return the diffs of the files that landed, those in conflict first, and a list of the files that are not shown;
    empty when nothing changed. A file is shown whole, and only as long as all of them fit into SINCE_BYTES."""
    command = ("diff", "--no-ext-diff", "--no-textconv", "--no-renames", "-z", "--name-only", "--end-of-options")
    changed = vault.git.execute(*command, base, onto).names
    ordered = sorted(changed, key=lambda path: path not in conflicts)
    remaining, shown, omitted = SINCE_BYTES, [], []
    for path in ordered[:_COMMITS]:
        text = unified_diff(vault, base, onto, path) if remaining > 0 else ""
        if text and len(text) <= remaining:
            shown.append(text)
        else:
            omitted.append(path)
        remaining -= len(text)
    omitted += ordered[_COMMITS:]
    parts = ["".join(shown)] if shown else []
    if omitted:
        parts.append(
            "Changed too, and not shown here:\n"
            + _bullet_list([escape_path(path)[:200] for path in omitted[:_COMMITS]])
        )
    return "\n".join(parts)


def _bullet_list(lines: list[str]) -> str:
    """Return the lines as a Markdown list."""
    return "\n".join(f"- {line}" for line in lines)


MAX_PAIRS = 20
"""The most deliveries compared with one commit, at 6 ms each: an ordinary host has no more open at once."""

MAX_CONFLICTS, PATH_CHARS = 3, 200
"""The most conflicts of one commit that are reported, and characters of a path: history keeps them, and a person reads
them in one line."""


@dataclass(frozen=True)
class _OpenDelivery:
    """Another delivery that has not ended, with its base and its newest commit."""

    delivery: str
    base: str
    commit: str


def predict_conflicts(workspace: Workspace, commit: str, near: str) -> dict[str, str]:
    """Predict with which other open deliveries of this vault `commit` would conflict if both landed, and return the
    first such path by delivery, for at most MAX_CONFLICTS of them.

    near  deliveries whose names begin with it are compared first

    At most MAX_PAIRS deliveries are compared, each by its newest commit. Conflicts that come only from what landed
    between their two base commits do not count. Raises WorkspaceLost when the workspace has no record.
    """
    vault, record = workspace.vault, workspace.record()
    conflicts = dict[str, str]()
    for other in _open_deliveries(workspace, near)[:MAX_PAIRS]:
        paths = conflicting_paths(vault, commit, other.commit)
        if paths and other.base != record.base_sha:  # conflicts with what landed between the bases do not count
            earlier_conflicts = {
                *conflicting_paths(vault, commit, other.base),
                *conflicting_paths(vault, record.base_sha, other.commit),
            }
            paths = tuple(path for path in paths if path not in earlier_conflicts)
        if paths:
            conflicts[other.delivery] = escape_path(paths[0])[:PATH_CHARS]
        if len(conflicts) == MAX_CONFLICTS:
            break
    return conflicts


def _open_deliveries(workspace: Workspace, near: str) -> list[_OpenDelivery]:
    """Return the other deliveries of this vault that have not ended and have a commit of their own, ordered by name,
    those that begin with `near` first. One whose record cannot be read is left out."""
    deliveries, vault = list[_OpenDelivery](), workspace.vault
    directory = workspace.home.workspace(workspace.delivery).parent
    names = sorted((path.name for path in directory.iterdir()), key=lambda name: (not name.startswith(near), name))
    for name in names:
        with suppress(WorkspaceLost, OSError):
            other_record = Workspace.open(workspace.home, name).record()
            if (
                name == workspace.delivery
                or other_record.ended_at is not None
                or Path(other_record.vault) != vault.path
            ):
                continue
            tip = vault.read_ref(f"refs/heads/{branch_name(name)}")
            if tip and tip != other_record.base_sha:
                deliveries.append(_OpenDelivery(name, other_record.base_sha, tip))
    return deliveries

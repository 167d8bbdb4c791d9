"""Git for the engine: the vault with its checkpoints and branches, worktrees, and what is fetched from and pushed to
remotes.

Every git command that works on a repository goes through `git.command`.
"""

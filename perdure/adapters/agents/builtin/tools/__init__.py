"""The agent's tools in a worktree; the sandbox and the path rules see to it that it can do nothing else."""

from perdure.adapters.agents.builtin.tools.base import Toolbox
from perdure.adapters.agents.builtin.tools.run import describe, run_calls, tools_for

__all__ = ["Toolbox", "describe", "run_calls", "tools_for"]

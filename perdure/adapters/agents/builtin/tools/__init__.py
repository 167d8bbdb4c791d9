"""The agent's tools in a worktree; the sandbox and the path rules see to it that it can do nothing else."""

from perdure.adapters.agents.builtin.tools.base import Toolbox
from perdure.adapters.agents.builtin.tools.tool_calls import describe_reply, run_calls, tool_definitions

__all__ = ["Toolbox", "describe_reply", "run_calls", "tool_definitions"]

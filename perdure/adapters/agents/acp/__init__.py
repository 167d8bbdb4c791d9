"""Agents that speak the Agent Client Protocol: one JSON message a line, over the agent's standard streams."""

"""The agent that carries out agentic steps, built in, on the Anthropic Messages API."""

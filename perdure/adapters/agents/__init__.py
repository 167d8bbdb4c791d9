"""What carries out agentic steps: the built-in agent on the Anthropic Messages API."""

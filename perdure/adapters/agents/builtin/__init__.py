"""The agent that is built in, on the Anthropic Messages API."""

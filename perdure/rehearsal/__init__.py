"""A deterministic twin of the Anthropic Messages API: plays a screenplay over real HTTP."""

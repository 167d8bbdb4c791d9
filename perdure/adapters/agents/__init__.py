"""The agents that carry out agentic steps, and what all of them share: prices, errors, texts."""

"""What the engine itself looks for in a change, beside the reviewer: from git's objects alone (docs/review.md)."""

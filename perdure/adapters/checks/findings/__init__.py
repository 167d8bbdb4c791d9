"""The engine's own findings in a change, beside the reviewer's: from git's objects alone (docs/review.md)."""

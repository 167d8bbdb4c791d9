"""The engine's own findings in a change, beside those of the model that reviews it: read from git's objects alone
(docs/review.md)."""

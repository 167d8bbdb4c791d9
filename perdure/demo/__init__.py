"""`perdure demo`: a real delivery of a scripted model's work, while its worker is killed again and again."""

"""Commands that hand in work, and what they were asked for, checked before anything starts."""

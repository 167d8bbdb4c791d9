"""Commands by which a person decides, answers, sends messages and pays."""

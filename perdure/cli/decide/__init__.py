"""Commands by which a person decides, answers, says and pays."""

"""The only code that touches the outside: git, the sandbox, model APIs, forges, this host's disk."""

"""What we know about a target repository: its configuration, its toolchain, how its own commands are run."""

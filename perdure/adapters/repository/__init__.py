"""A target repository: its configuration, the toolchain detected in it, its setup, ports, notes and issue."""

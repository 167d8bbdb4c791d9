"""The sandbox of tool and test commands: no network, no secrets, and of the host only what the toolchain needs."""

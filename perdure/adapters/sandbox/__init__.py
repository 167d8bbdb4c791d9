"""The sandbox of tool and test commands: no network, no secrets, of the host only what the toolchain needs."""

"""Where tool and test commands run: no network, no secrets, nothing of the host but what the toolchain needs."""

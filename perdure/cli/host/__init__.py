"""Commands about this host: its server and workers, its configuration, its health."""

"""The lowest layer of adapters: home, files, locks, threads, bounded reading of files. It imports no other adapter."""

"""The ground every adapter stands on: home, files, threads, bounded reading of files. It imports no other adapter."""

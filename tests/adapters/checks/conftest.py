"""Small repositories on disk, and the sandbox their commands run in."""

from tests.sandboxes import bench, files, sandbox

__all__ = ["bench", "files", "sandbox"]

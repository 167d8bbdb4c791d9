"""A GitHub on this machine: its REST API, git over HTTP and pages, held against GitHub's own description of the API."""

from tests.twins.github.server import GitHubTwin

__all__ = ["GitHubTwin"]

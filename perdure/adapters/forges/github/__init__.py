"""GitHub, and GitHub Enterprise Server: pull requests, issues and access, over its REST API by PyGithub. Others reach
it through `forges.select` alone."""

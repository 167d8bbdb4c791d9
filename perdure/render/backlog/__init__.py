"""A backlog as people see it: lines, the graph of its items, its report."""

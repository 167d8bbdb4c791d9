"""`perdure backlog`: many requests that land on one integration branch."""

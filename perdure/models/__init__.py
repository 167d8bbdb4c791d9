"""Pure data of pydantic and pure decisions over it: requests, results, turns, states, limits. No input or output here;
workflows import nothing else."""

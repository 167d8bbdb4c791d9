"""Pure data: what requests, results, turns and limits look like. No I/O here; workflows import nothing else."""

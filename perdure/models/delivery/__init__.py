"""A delivery: its request, steps, state and result, and the inputs and results of its activities."""

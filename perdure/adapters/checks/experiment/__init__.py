"""Bent tests, found by running instead of reading (DESIGN §7).

trees    what a commit holds, and trees made of the files of two
sides    which paths are tests and what steers them, and which are the product
commits  both commits of an experiment, and what is laid out of them
runs     one run of a command on one of these
judge    what a run says, test by test
engine   the experiments
"""

"""Experiments that judge a change: tests that were tampered with show when they are run, not when they are read.
`activities.change_experiments` runs them once the change's own tests are green.

side_rules      which paths are tests and what steers them, and which are the product; data of tests in other places
reduced_tests   test files of the base without what the change has deleted from them; one test out of its file
commit_pair     both commits of an experiment, and the trees that its runs need; a check of the test side for people
runs            one run of a command in one of these trees, and the read-only test side
outcomes        what a run says, test by test: failures repeated, canaries (tests that must fail) not reported as
                failing
run_experiment  the experiments
"""

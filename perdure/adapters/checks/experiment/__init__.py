"""Experiments that judge a change: tests that were tampered with show when they are run, not when they are read (DESIGN
§7).

trees               the files of a commit, and trees made of the files of two
side_rules          which paths are tests and what steers them, and which are the product
outlying_test_data  data of tests in places where only product is expected
reduced_tests       test files of the base without what the change has deleted from them
commit_pair         both commits of an experiment, and the trees that its runs need
runs                one run of a command in one of these trees
outcomes            what a run says, test by test
confirm_failures    failures of the base's tests on the change, repeated
missed_canaries     tests that must fail, and were not reported as failing
run_experiment      the experiments
"""

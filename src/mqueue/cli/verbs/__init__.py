"""The verbs of the command line, a module per group. What they stand on is imported when one runs: help is quick."""

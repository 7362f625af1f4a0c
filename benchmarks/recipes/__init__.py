"""Whole experiments with other libraries, each one command: `python -m benchmarks.recipes.NAME --help`."""

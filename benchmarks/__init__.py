"""Is it better, and how sure are we: the `sesa` command, evaluation, statistics."""

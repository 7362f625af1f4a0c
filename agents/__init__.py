"""Agents of sesa-env: who plays, and how they learn."""

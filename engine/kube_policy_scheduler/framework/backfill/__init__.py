"""Backfill: the first pod or gang of a strict order that waits gets room at a later moment; others start beside it."""

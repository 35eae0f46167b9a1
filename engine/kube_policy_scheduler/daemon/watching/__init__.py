"""The cluster as it comes in: lists and watches, into columns and queue."""

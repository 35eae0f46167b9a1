"""The process itself: its clock, loops, threads, workers and memory."""

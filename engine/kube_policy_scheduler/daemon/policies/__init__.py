"""The active policies: reloaded, reported, compared with their canaries, supplied with metrics."""

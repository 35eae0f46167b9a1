"""The policies in force: reloaded, told, compared with their canaries, fed with metrics."""

"""Fast looks at many nodes: compiled loops, maxima by block, bounds. Decisions are the same without them."""

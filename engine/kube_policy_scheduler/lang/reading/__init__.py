"""Text to syntax tree: lines, grammar, lowering, and what to say where a text can't be read."""

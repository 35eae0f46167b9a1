"""Text to syntax tree: lines, grammar, lowering, and error messages for text that cannot be parsed."""

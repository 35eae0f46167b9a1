"""The policy language: text to checked tree to callables over columns. Knows no cluster, no files."""

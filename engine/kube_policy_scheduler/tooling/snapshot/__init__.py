"""A live cluster as a fixture: what scheduling reads and nothing else, names replaced where asked. Pure."""

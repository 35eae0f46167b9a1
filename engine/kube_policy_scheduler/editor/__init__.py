"""What an editor asks about policies, test files and the configuration: pure functions from a text and an offset to an
answer. The language server hands them texts and carries the answers; here are no protocol, files or clocks."""

"""One subcommand per module: `command` is a click command, and the module's name is its name (`_` stands for `-`).

Modules are imported to list them, so what only one command needs is imported inside it.
"""

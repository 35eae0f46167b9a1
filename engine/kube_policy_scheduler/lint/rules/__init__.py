"""The rules, one subject a module. A new module is found by itself."""

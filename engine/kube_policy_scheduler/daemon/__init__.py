"""The scheduler as a process: adapters and framework put together and kept alive."""

"""Queues that lend: what each uses, used and is left."""

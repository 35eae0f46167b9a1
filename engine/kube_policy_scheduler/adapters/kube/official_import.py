"""Who imports the official client does so alone.

Its modules import each other in a circle, and some only when a name is asked for. Where two threads do that at a time,
each waits for a module of the other one, and both imports fail.
"""

from threading import Lock

ALONE = Lock()
"""Held while something of `kubernetes` is imported in a function, which any thread may call."""

"""Pages are opened in a browser."""

from tests.browser import browser

__all__ = ["browser"]

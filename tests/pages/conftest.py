"""Pages are opened in a browser."""

from tests.fakes.browser import browser

__all__ = ["browser"]

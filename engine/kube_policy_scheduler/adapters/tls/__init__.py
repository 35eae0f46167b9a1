"""Certificates: served, issued, and those that clients show."""

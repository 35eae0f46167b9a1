"""The grammar of the policy language, as package data."""

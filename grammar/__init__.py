"""The grammar of the policy language, and its reference. A package so that an installed wheel carries it."""

"""Whether the tests of a policy would notice if it said something else: small changes of it, run against its cases."""

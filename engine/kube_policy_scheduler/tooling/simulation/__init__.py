"""A stream of pods through the real cycle with a virtual clock: `policyctl simulate`. Knows no files and no time."""

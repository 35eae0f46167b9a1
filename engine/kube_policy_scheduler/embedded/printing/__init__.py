"""The forms in which objects are shown: API versions, and kubectl's tables."""

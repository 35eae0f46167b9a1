"""The cluster as columns: API objects in, NumPy arrays out. Pure; knows nothing of policies."""

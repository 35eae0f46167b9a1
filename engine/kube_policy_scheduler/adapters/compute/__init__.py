"""Libraries that compute: numba, HiGHS, Optuna. Each is known by one module."""

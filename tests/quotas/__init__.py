"""Quotas with borrowing, checked by a model that shares no code with the scheduler: see `model.py`."""

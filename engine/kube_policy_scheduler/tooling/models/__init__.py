"""Trained models that policies call: what they get and predict, beside what they were trained on."""

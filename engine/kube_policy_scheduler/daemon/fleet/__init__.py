"""The decision maker of a fleet: what `policy-scheduler fleet` runs beside Karmada's own scheduler."""

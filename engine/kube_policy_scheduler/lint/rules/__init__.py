"""The rules, one module per subject. The runner imports every module here."""

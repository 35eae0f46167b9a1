"""The admission webhook: rejects ConfigMaps whose policies have errors."""

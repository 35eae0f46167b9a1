"""The admission webhook: policies with errors do not get into ConfigMaps."""

"""Where another scheduler places the pods: shadow and extender."""

"""The modes in which another scheduler places the pods: shadow and extender."""

"""`make demo ARGS='--fleet'`: a Karmada-shaped control plane, three embedded clusters, and a region that is lost."""

"""Which pods give way: preemption, reclaim of quotas, and room for a pod that grows in place."""

"""A fleet in virtual time: clusters are lost and come back, workloads come and go, and policies decide."""

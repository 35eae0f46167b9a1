"""Lists and watches of the cluster, which update the cache and the queue."""

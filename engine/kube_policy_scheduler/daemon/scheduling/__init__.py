"""The scheduling loop: from the queue to the binding, and the handling of unschedulable pods."""

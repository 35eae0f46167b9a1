"""The loop: from the queue to the binding, and what becomes of pods that fit nowhere."""

"""The scheduling cycle of one pod: from its policy to its node, or to what stands in its way."""

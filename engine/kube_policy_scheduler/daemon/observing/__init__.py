"""What happened, for those who look later: metrics, events, decision log, traces."""

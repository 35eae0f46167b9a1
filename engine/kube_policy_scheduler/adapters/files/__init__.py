"""Files and directories: policies, captured cases, and what commands write."""

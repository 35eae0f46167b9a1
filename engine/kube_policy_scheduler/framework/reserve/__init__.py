"""Reserve and PreBind: what happens to claims and volumes between a decision and the binding."""

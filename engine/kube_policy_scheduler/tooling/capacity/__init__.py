"""`policyctl capacity`: how much more fits, which nodes can be removed, and what if a zone is lost. Pure."""

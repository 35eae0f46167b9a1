"""`policyctl capacity`: how much more fits, what could go, and what if a zone is lost. Pure."""

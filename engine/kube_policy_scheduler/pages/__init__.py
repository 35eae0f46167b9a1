"""Pages for people to look at: HTML of what the tools and the daemon found. Pure: values in, text out."""

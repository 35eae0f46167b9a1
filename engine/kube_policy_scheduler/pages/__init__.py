"""HTML reports of the tools and the status page of the daemon. Pure: values in, text out."""

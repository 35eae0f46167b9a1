"""HTTP and its bodies: requests in, answers, errors, discovery and OpenAPI out."""

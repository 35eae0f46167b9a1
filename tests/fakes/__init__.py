"""What tests put in the place of the world: servers, a browser, a volume."""

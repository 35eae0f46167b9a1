"""What a controller manager does, in small."""

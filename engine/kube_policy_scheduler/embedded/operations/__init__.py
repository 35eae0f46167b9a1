"""What the API does with objects: create, patch, bind, delete, and what it refuses."""

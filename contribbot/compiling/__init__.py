"""AMD code objects and their listings, made without an AMD GPU."""

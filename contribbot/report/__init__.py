"""What people and programs see of a verification."""

"""The partition of highest welfare: exact search, local search and upper bounds."""

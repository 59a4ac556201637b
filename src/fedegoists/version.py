"""The version, in one place for the package, its metadata and everything it writes."""

__all__ = ["__version__"]

__version__ = "0.1.0"

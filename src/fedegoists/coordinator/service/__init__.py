"""The coordinator over HTTP: an interface for programs, and pages for people."""

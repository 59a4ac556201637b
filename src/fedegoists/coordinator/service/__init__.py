"""The coordinator over HTTP: an API for programs, and pages for people."""

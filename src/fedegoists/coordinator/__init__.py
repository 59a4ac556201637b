"""The coordinator, a trusted third party: a service with a database and web pages."""

"""The trusted third party: a service with a store and a web page (extra ``coordinator``)."""

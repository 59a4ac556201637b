"""What the trusted third party does, apart from how it is asked over the network."""

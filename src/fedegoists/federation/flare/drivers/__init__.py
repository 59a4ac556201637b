"""Drivers for FLARE's connections, found by FLARE through ``comm_driver_path`` of a kit."""

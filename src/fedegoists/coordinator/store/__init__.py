"""Where the coordinator keeps everything: one SQLite file, or a PostgreSQL database."""

from fedegoists.coordinator.store.database import Store

__all__ = ["Store"]

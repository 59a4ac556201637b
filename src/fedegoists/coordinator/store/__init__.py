"""The coordinator's database, SQLite or PostgreSQL: its tables, transactions and audit log."""

from fedegoists.coordinator.store.database import CoordinatorStore, Transaction

__all__ = ["CoordinatorStore", "Transaction"]

"""Alembic's environment: migrations run on the given connection, in its transaction."""

from alembic import context

from fedegoists.coordinator.store.database_tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
context.run_migrations()

"""How Alembic runs our migrations: on the connection it is given, inside its transaction."""

from alembic import context

from fedegoists.coordinator.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
context.run_migrations()

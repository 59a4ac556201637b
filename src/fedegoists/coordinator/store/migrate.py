"""Migration of a database to the tables of this version."""

import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from fedegoists.coordinator.coordinator_errors import StoreError

logging.getLogger("alembic").setLevel(logging.WARNING)


def config_for(connection: Connection) -> Config:
    """Return the configuration of Alembic for a connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config


def latest(connection: Connection) -> str:
    """Return the newest revision of this version."""
    return ScriptDirectory.from_config(config_for(connection)).get_current_head() or ""


def revision_of(connection: Connection) -> str | None:
    """Return the revision of a database; None if it has no tables yet."""
    return MigrationContext.configure(connection).get_current_revision()


def is_current(connection: Connection) -> bool:
    """Whether no migration is missing."""
    return revision_of(connection) == latest(connection)


def upgrade(connection: Connection) -> None:
    """Apply the missing migrations; a database of a later version is refused."""
    found = revision_of(connection)
    scripts = ScriptDirectory.from_config(config_for(connection))
    known = {script.revision for script in scripts.walk_revisions()}
    if found is not None and found not in known:
        raise StoreError(
            f"the database was written by a later version (revision {found}); "
            "update fedegoists, or restore a backup of this version"
        )
    if found != scripts.get_current_head():
        command.upgrade(config_for(connection), "head")

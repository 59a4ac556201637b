"""Migrations: the tables of every version, and databases of other versions."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from fedegoists.coordinator.coordinator_errors import StoreError
from fedegoists.coordinator.domain import coalition_decisions
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.audit_check import reports_digest
from fedegoists.coordinator.store.database_tables import Base
from fedegoists.coordinator.store.migrate import revision_of
from tests.coordinator.consortia import NAMES, WEIGHTS, checked, forms, found, report


def test_migrations_make_the_tables_that_the_code_expects(store):
    with store.read() as session:
        context = MigrationContext.configure(session.connection())
        assert compare_metadata(context, Base.metadata) == []
        assert revision_of(session.connection()) == "0004"
    CoordinatorStore(store.url).close()  # again: nothing to do


def test_a_database_of_the_first_version_goes_on(store, monkeypatch):
    """Its decisions have no salt of their own; what the log says of them still holds."""
    consortium_id, _ = found(store, NAMES, weights=WEIGHTS)
    report(store, consortium_id, "South", "East")
    with monkeypatch.context() as before:
        before.setattr(coalition_decisions, "_new_salt", lambda: None)
        before.setattr(coalition_decisions, "new_secret", lambda: b"s" * 32)
        hidden = (b"s" * 32).hex()
        before.setattr(
            coalition_decisions,
            "reports_digest",
            lambda _, reports: reports_digest(hidden, reports),
        )
        forms(store, consortium_id)
    with store.write() as session:
        session.execute(text("ALTER TABLE formations DROP COLUMN salt"))
        session.execute(text("ALTER TABLE competition_reports DROP COLUMN sealed"))
        session.execute(text("ALTER TABLE members DROP COLUMN invited_again"))
        session.execute(text("ALTER TABLE formations DROP COLUMN published"))
        session.execute(text("ALTER TABLE members DROP COLUMN reported"))
        session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    store.close()
    again = CoordinatorStore(store.url, clock=store.clock)
    assert checked(again).ok
    assert forms(again, consortium_id).number == 2
    assert checked(again).ok
    again.close()


def test_a_database_of_a_later_version_is_left_alone(store):
    with store.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="later version"):
        CoordinatorStore(store.url)

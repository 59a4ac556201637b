"""The first tables, and an audit log that can only be added to."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

MOMENT = sa.String(27)
DIGEST = sa.String(64)


def upgrade() -> None:
    """Create all tables."""
    _create_members_and_accounts()
    _create_graphs_and_decisions()
    _create_runs()
    _create_audit_log()


def _create_members_and_accounts() -> None:
    op.create_table(
        "consortia",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("deadline", MOMENT),
        sa.Column("created", MOMENT, nullable=False),
    )
    op.create_table(
        "members",
        sa.Column("id", sa.Integer, primary_key=True),
        _reference("consortium_id", "consortia.id"),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("created", MOMENT, nullable=False),
        sa.UniqueConstraint("consortium_id", "name"),
    )
    op.create_table(
        "accounts",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("label", sa.String(200), nullable=False),
        _reference("member_id", "members.id", nullable=True),
        sa.Column("created", MOMENT, nullable=False),
        sa.Column("ended", MOMENT),
    )
    op.create_table(
        "credentials",
        sa.Column("id", sa.Integer, primary_key=True),
        _reference("account_id", "accounts.id", index=True),
        sa.Column("kind", sa.String(12), nullable=False),
        sa.Column("digest", DIGEST, nullable=False, unique=True),
        sa.Column("created", MOMENT, nullable=False),
        sa.Column("expires", MOMENT),
        sa.Column("ended", MOMENT),
    )


def _create_graphs_and_decisions() -> None:
    op.create_table(
        "competition_reports",
        sa.Column("id", sa.Integer, primary_key=True),
        _reference("consortium_id", "consortia.id"),
        _reference("reporter_id", "members.id"),
        _reference("competitor_id", "members.id"),
        sa.Column("salt", DIGEST, nullable=False),
        sa.Column("created", MOMENT, nullable=False),
        sa.Column("withdrawn", MOMENT),
        sa.Index(None, "consortium_id", "reporter_id"),
    )
    op.create_table(
        "benefit_estimates",
        sa.Column("id", sa.Integer, primary_key=True),
        _reference("consortium_id", "consortia.id", index=True),
        sa.Column("source", sa.String(200), nullable=False),
        sa.Column("graph", sa.Text, nullable=False),
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("created", MOMENT, nullable=False),
    )
    op.create_table(
        "formations",
        sa.Column("id", sa.Integer, primary_key=True),
        _reference("consortium_id", "consortia.id"),
        sa.Column("number", sa.Integer, nullable=False),
        _reference("benefit_id", "benefit_estimates.id"),
        sa.Column("certificate", sa.Text, nullable=False),
        sa.Column("certificate_digest", DIGEST, nullable=False),
        sa.Column("secret", DIGEST, nullable=False),
        sa.Column("commitment", DIGEST, nullable=False),
        sa.Column("reports", sa.Text, nullable=False),
        sa.Column("created", MOMENT, nullable=False),
        sa.UniqueConstraint("consortium_id", "number"),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer, primary_key=True),
        _reference("consortium_id", "consortia.id"),
        sa.Column("number", sa.Integer, nullable=False),
        _reference("formation_id", "formations.id", nullable=True),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("engine", sa.String(40), nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("stage", sa.String(200), nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("remark", sa.String(200), nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("created", MOMENT, nullable=False),
        sa.Column("started", MOMENT),
        sa.Column("ended", MOMENT),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.UniqueConstraint("consortium_id", "number"),
    )


def _create_audit_log() -> None:
    op.create_table(
        "audit_log",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("previous", DIGEST, nullable=False),
        sa.Column("digest", DIGEST, nullable=False),
    )
    _forbid_changes()


def _reference(
    name: str, target: str, *, nullable: bool = False, index: bool = False
) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer, sa.ForeignKey(target), nullable=nullable, index=index)


def _forbid_changes() -> None:
    """Have the database itself refuse to change or delete an entry of the audit log."""
    if op.get_bind().dialect.name == "sqlite":
        for action in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_log_no_{action.lower()} BEFORE {action} ON audit_log "
                "BEGIN SELECT RAISE(ABORT, 'the audit log can only be added to'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION audit_log_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit log can only be added to'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuse()"
    )

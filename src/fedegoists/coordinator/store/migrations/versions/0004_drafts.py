"""Decisions are drafts until they are published, and members say when they have reported.

Decisions of earlier versions were published when they were made.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; all decisions there are have been published."""
    op.add_column("formations", sa.Column("published", sa.String(27)))
    op.execute("UPDATE formations SET published = created")
    op.add_column("members", sa.Column("reported", sa.String(27)))

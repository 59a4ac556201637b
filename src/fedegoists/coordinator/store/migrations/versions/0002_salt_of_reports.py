"""A salt of their own for the reports behind a decision, which an opening does not hold.

Decisions that were made before have none: what the log says of their reports cannot be changed.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; it is empty for the decisions there are."""
    op.add_column("formations", sa.Column("salt", sa.String(64)))

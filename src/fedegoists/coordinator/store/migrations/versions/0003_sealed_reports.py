"""Reports that were made before a member was invited again are sealed.

Those of members that were invited again before this migration are not: they could be read already.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; they are empty for the reports and members there are."""
    op.add_column("competition_reports", sa.Column("sealed", sa.String(27)))
    op.add_column("members", sa.Column("invited_again", sa.String(27)))

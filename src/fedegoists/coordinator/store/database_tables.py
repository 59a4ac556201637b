"""The tables. Times are text, see `moments`; of secrets only hashes are kept."""

from sqlalchemy import (
    BigInteger,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

MOMENT = String(27)
DIGEST = String(64)


class Base(DeclarativeBase):
    """Base of all tables, with names of constraints that migrations can refer to."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class ConsortiumRow(Base):
    """A consortium, and whether its members may still report competitors."""

    __tablename__ = "consortia"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    state: Mapped[str] = mapped_column(String(10), default="collecting")  # or closed
    deadline: Mapped[str | None] = mapped_column(MOMENT)
    created: Mapped[str] = mapped_column(MOMENT)


class MemberRow(Base):
    """An organisation in a consortium."""

    __tablename__ = "members"
    __table_args__ = (UniqueConstraint("consortium_id", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    consortium_id: Mapped[int] = mapped_column(ForeignKey("consortia.id"))
    name: Mapped[str] = mapped_column(String(200))
    state: Mapped[str] = mapped_column(String(10), default="invited")  # joined or expelled
    created: Mapped[str] = mapped_column(MOMENT)
    invited_again: Mapped[str | None] = mapped_column(MOMENT)  # since it joined, the last time
    # When it said that it has reported all of its competitors, or has none.
    reported: Mapped[str | None] = mapped_column(MOMENT)
    consortium: Mapped[ConsortiumRow] = relationship(lazy="joined")


class AccountRow(Base):
    """An account of a manager, a member or a monitor."""

    __tablename__ = "accounts"
    id: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(String(10))  # manager, member or monitor
    label: Mapped[str] = mapped_column(String(200))
    member_id: Mapped[int | None] = mapped_column(ForeignKey("members.id"))
    created: Mapped[str] = mapped_column(MOMENT)
    ended: Mapped[str | None] = mapped_column(MOMENT)
    member: Mapped[MemberRow | None] = relationship(lazy="joined")


class CredentialRow(Base):
    """A credential of an account: the hash of a secret, or of a client certificate."""

    __tablename__ = "credentials"
    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    kind: Mapped[str] = mapped_column(String(12))  # invitation, token, session or certificate
    digest: Mapped[str] = mapped_column(DIGEST, unique=True)
    created: Mapped[str] = mapped_column(MOMENT)
    expires: Mapped[str | None] = mapped_column(MOMENT)
    ended: Mapped[str | None] = mapped_column(MOMENT)
    account: Mapped[AccountRow] = relationship(lazy="joined")


class ReportRow(Base):
    """One member named another as a competitor, in confidence."""

    __tablename__ = "competition_reports"
    __table_args__ = (Index(None, "consortium_id", "reporter_id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    consortium_id: Mapped[int] = mapped_column(ForeignKey("consortia.id"))
    reporter_id: Mapped[int] = mapped_column(ForeignKey("members.id"))
    competitor_id: Mapped[int] = mapped_column(ForeignKey("members.id"))
    salt: Mapped[str] = mapped_column(DIGEST)  # the audit log holds only a salted hash
    created: Mapped[str] = mapped_column(MOMENT)
    withdrawn: Mapped[str | None] = mapped_column(MOMENT)
    # Since then the reporter has another token: the report counts, but is not shown with it.
    sealed: Mapped[str | None] = mapped_column(MOMENT)


class BenefitRow(Base):
    """A benefit graph, uploaded or learned."""

    __tablename__ = "benefit_estimates"
    id: Mapped[int] = mapped_column(primary_key=True)
    consortium_id: Mapped[int] = mapped_column(ForeignKey("consortia.id"), index=True)
    source: Mapped[str] = mapped_column(String(200))
    graph: Mapped[str] = mapped_column(Text)
    digest: Mapped[str] = mapped_column(DIGEST)
    created: Mapped[str] = mapped_column(MOMENT)


class FormationRow(Base):
    """A decision with its certificate, and the secret of the commitment to it."""

    __tablename__ = "formations"
    __table_args__ = (UniqueConstraint("consortium_id", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    consortium_id: Mapped[int] = mapped_column(ForeignKey("consortia.id"))
    number: Mapped[int] = mapped_column(Integer)
    benefit_id: Mapped[int] = mapped_column(ForeignKey("benefit_estimates.id"))
    certificate: Mapped[str] = mapped_column(Text)
    certificate_digest: Mapped[str] = mapped_column(DIGEST)
    secret: Mapped[str] = mapped_column(DIGEST)
    commitment: Mapped[str] = mapped_column(DIGEST)
    reports: Mapped[str] = mapped_column(Text)  # the reports at the time of the decision
    # Salt of the reports' hash in the audit log; unlike the secret, it is part of no opening.
    # Decisions of earlier versions have none: there the secret was the salt.
    salt: Mapped[str | None] = mapped_column(DIGEST)
    created: Mapped[str] = mapped_column(MOMENT)
    published: Mapped[str | None] = mapped_column(MOMENT)  # a draft is for the manager only


class RunRow(Base):
    """A run: its plan and its progress."""

    __tablename__ = "runs"
    __table_args__ = (UniqueConstraint("consortium_id", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    consortium_id: Mapped[int] = mapped_column(ForeignKey("consortia.id"))
    number: Mapped[int] = mapped_column(Integer)
    formation_id: Mapped[int | None] = mapped_column(ForeignKey("formations.id"))
    kind: Mapped[str] = mapped_column(String(10))  # benefit or training
    engine: Mapped[str] = mapped_column(String(40))
    plan: Mapped[str] = mapped_column(Text)
    # queued, running, waiting (for silos), finished, failed or cancelled
    state: Mapped[str] = mapped_column(String(10))
    stage: Mapped[str] = mapped_column(String(200), default="")
    done: Mapped[int] = mapped_column(BigInteger, default=0)
    total: Mapped[int] = mapped_column(BigInteger, default=0)
    remark: Mapped[str] = mapped_column(String(200), default="")
    error: Mapped[str] = mapped_column(Text, default="")
    created: Mapped[str] = mapped_column(MOMENT)
    started: Mapped[str | None] = mapped_column(MOMENT)
    ended: Mapped[str | None] = mapped_column(MOMENT)
    seconds: Mapped[float] = mapped_column(Float, default=0.0)


class AuditEntry(Base):
    """An entry of the audit log, which is append-only; each holds the hash of the one before."""

    __tablename__ = "audit_log"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[str] = mapped_column(MOMENT)
    actor: Mapped[str] = mapped_column(String(200))
    action: Mapped[str] = mapped_column(String(40))
    details: Mapped[str] = mapped_column(Text)
    previous: Mapped[str] = mapped_column(DIGEST)
    digest: Mapped[str] = mapped_column(DIGEST)

"""The tables. Moments are text, see `times`; whatever is secret is kept as a hash only."""

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

__all__ = [
    "Account",
    "AuditEntry",
    "Base",
    "BenefitEstimate",
    "CompetitionReport",
    "ConsortiumRecord",
    "Credential",
    "FormationRecord",
    "Member",
    "RunRecord",
]

MOMENT = String(27)
DIGEST = String(64)


class Base(DeclarativeBase):
    """What all tables share: names of constraints that migrations can refer to."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class ConsortiumRecord(Base):
    """A consortium, and whether its members may still report competitors."""

    __tablename__ = "consortia"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    state: Mapped[str] = mapped_column(String(10), default="collecting")  # or closed
    deadline: Mapped[str | None] = mapped_column(MOMENT)
    created: Mapped[str] = mapped_column(MOMENT)


class Member(Base):
    """An organisation in a consortium."""

    __tablename__ = "members"
    __table_args__ = (UniqueConstraint("consortium_id", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    consortium_id: Mapped[int] = mapped_column(ForeignKey("consortia.id"))
    name: Mapped[str] = mapped_column(String(200))
    state: Mapped[str] = mapped_column(String(10), default="invited")  # joined or expelled
    created: Mapped[str] = mapped_column(MOMENT)
    consortium: Mapped[ConsortiumRecord] = relationship(lazy="joined")


class Account(Base):
    """Somebody who may do something here."""

    __tablename__ = "accounts"
    id: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(String(10))  # manager, member or monitor
    label: Mapped[str] = mapped_column(String(200))
    member_id: Mapped[int | None] = mapped_column(ForeignKey("members.id"))
    created: Mapped[str] = mapped_column(MOMENT)
    ended: Mapped[str | None] = mapped_column(MOMENT)
    member: Mapped[Member | None] = relationship(lazy="joined")


class Credential(Base):
    """How an account shows who it is: the hash of a secret, or of a client certificate."""

    __tablename__ = "credentials"
    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    kind: Mapped[str] = mapped_column(String(12))  # invitation, token, session or certificate
    digest: Mapped[str] = mapped_column(DIGEST, unique=True)
    created: Mapped[str] = mapped_column(MOMENT)
    expires: Mapped[str | None] = mapped_column(MOMENT)
    ended: Mapped[str | None] = mapped_column(MOMENT)
    account: Mapped[Account] = relationship(lazy="joined")


class CompetitionReport(Base):
    """One member named another as a competitor, in confidence."""

    __tablename__ = "competition_reports"
    __table_args__ = (Index(None, "consortium_id", "reporter_id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    consortium_id: Mapped[int] = mapped_column(ForeignKey("consortia.id"))
    reporter_id: Mapped[int] = mapped_column(ForeignKey("members.id"))
    competitor_id: Mapped[int] = mapped_column(ForeignKey("members.id"))
    salt: Mapped[str] = mapped_column(DIGEST)  # so that the audit log can vouch for it unseen
    created: Mapped[str] = mapped_column(MOMENT)
    withdrawn: Mapped[str | None] = mapped_column(MOMENT)


class BenefitEstimate(Base):
    """Who benefits whom, as uploaded or learned."""

    __tablename__ = "benefit_estimates"
    id: Mapped[int] = mapped_column(primary_key=True)
    consortium_id: Mapped[int] = mapped_column(ForeignKey("consortia.id"), index=True)
    source: Mapped[str] = mapped_column(String(200))
    graph: Mapped[str] = mapped_column(Text)
    digest: Mapped[str] = mapped_column(DIGEST)
    created: Mapped[str] = mapped_column(MOMENT)


class FormationRecord(Base):
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
    reports: Mapped[str] = mapped_column(Text)  # who had reported whom when it was made
    # So that the audit log can vouch for the reports unseen; it is in no opening, as the secret is.
    # Decisions of earlier versions have none: the log hid their reports by the secret.
    salt: Mapped[str | None] = mapped_column(DIGEST)
    created: Mapped[str] = mapped_column(MOMENT)


class RunRecord(Base):
    """A run: what is wanted, and how far it has come."""

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
    """One entry of the log that is only ever added to; each holds the hash of the one before."""

    __tablename__ = "audit_log"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[str] = mapped_column(MOMENT)
    actor: Mapped[str] = mapped_column(String(200))
    action: Mapped[str] = mapped_column(String(40))
    details: Mapped[str] = mapped_column(Text)
    previous: Mapped[str] = mapped_column(DIGEST)
    digest: Mapped[str] = mapped_column(DIGEST)

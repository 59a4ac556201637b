"""The coordinator, as a member uses it."""

from collections.abc import Iterable
from typing import cast

from fedegoists.client.answers import DecisionAnswer, MeAnswer, MemberRunAnswer, ReportsAnswer
from fedegoists.client.connection import Connection, FilePath
from fedegoists.files import write_bytes


class MemberClient(Connection):
    """The coordinator, as a member uses it; parameters as for `Connection`."""

    def me(self) -> MeAnswer:
        """Return my consortium and its members."""
        return cast("MeAnswer", self.read("GET", "/api/me"))

    def report(self, competitors: Iterable[str], *, finished: bool = True) -> ReportsAnswer:
        """Report all of my competitors, in confidence; earlier reports of others are withdrawn.

        If `finished`, the manager sees that I have finished reporting.
        """
        body = {"competitors": list(competitors), "finished": finished}
        return cast("ReportsAnswer", self.read("PUT", "/api/me/reports", body))

    def reports(self) -> ReportsAnswer:
        """Return the competitors that I reported."""
        return cast("ReportsAnswer", self.read("GET", "/api/me/reports"))

    def decision(self) -> DecisionAnswer:
        """Return my coalition, and the benefits that I receive and give in it."""
        return cast("DecisionAnswer", self.read("GET", "/api/me/decision"))

    def save_certificate(self, path: FilePath) -> None:
        """Save the proof that the principles hold for me; `fedegoists verify` checks it."""
        write_bytes(path, self.ask("GET", "/api/me/certificate"), private=True)

    def runs(self) -> list[MemberRunAnswer]:
        """Return the training runs that I took part in."""
        return cast("list[MemberRunAnswer]", self.read("GET", "/api/me/runs"))

    def save_report(self, number: int, path: FilePath) -> None:
        """Save my page of a run's report."""
        write_bytes(path, self.ask("GET", f"/api/me/runs/{number}/report"), private=True)

    def save_model(self, number: int, path: FilePath) -> None:
        """Save my model of a run, as a safetensors file."""
        write_bytes(path, self.ask("GET", f"/api/me/runs/{number}/model"), private=True)

"""What the operator makes of a server's answers."""

from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.federation.flare.job_operator import Operator


class Starting:
    """A server at which the one job starts with the first question."""

    def __init__(self):
        self.states = iter([("SUBMITTED", []), ("RUNNING", [SimpleNamespace(job_id="1")])])

    def list_jobs(self, limit):
        return [{"job_id": "1", "status": next(self.states)[0]}]

    def get_system_info(self):
        server = SimpleNamespace(start_time=0.0)
        running = next(self.states)[1]
        return SimpleNamespace(server_info=server, client_info=[], job_info=running)


def test_a_job_that_is_just_starting_has_not_died():
    operator = Operator.__new__(Operator)
    operator._session = Starting()
    assert operator.status().jobs == {"1": "running"}

"""The client's answers have the fields that the coordinator sends."""

from dataclasses import fields

import pytest

pytest.importorskip("fastapi", reason="the extra coordinator is not installed")

from fedegoists.client import answers, manager_client
from fedegoists.coordinator.domain.member_view import MemberDecision
from fedegoists.coordinator.service import api_schemas
from fedegoists.coordinator.store import audit_check

VIEWS = {
    "MemberAnswer": api_schemas.MemberView,
    "ConsortiumAnswer": api_schemas.ConsortiumView,
    "FormationAnswer": api_schemas.FormationView,
    "ExplanationAnswer": api_schemas.ExplanationView,
    "WhatIfAnswer": api_schemas.WhatIfView,
    "MemberRunAnswer": api_schemas.MemberRunView,
    "RunAnswer": api_schemas.RunView,
    "MeAnswer": api_schemas.MeView,
    "ReportsAnswer": api_schemas.ReportsView,
    "DecisionAnswer": MemberDecision,
}
LEFT_OUT = {"WhatIfAnswer": {"scene"}}
"""The shapes of a picture, which the client does not ask for."""


@pytest.mark.parametrize("name", VIEWS)
def test_fields_are_those_of_the_view(name):
    view = VIEWS[name]
    if view is MemberDecision:
        sent = {one.name for one in fields(view)}
    else:
        sent = {*view.model_fields, *view.model_computed_fields}
    known = set(getattr(answers, name).__annotations__)
    if name == "RunAnswer":
        known |= set(answers.MemberRunAnswer.__annotations__)
    assert known == sent - LEFT_OUT.get(name, set())


def test_every_answer_is_compared():
    assert set(VIEWS) == {name for name in dir(answers) if name.endswith("Answer")}
    assert manager_client.ENDED == audit_check.ENDED

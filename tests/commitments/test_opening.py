"""Reading what was opened: other files are refused, and the command checks both kinds."""

import pytest

from fedegoists.commitments import Commitment, MemberCertificate, Opening
from fedegoists.errors import CertificateError
from tests.commitments.decision import SECRET, example


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[]", "not a fedegoists member certificate of version 1"),
        (
            '{"format": "fedegoists member certificate"}',
            "not a fedegoists member certificate of version 1",
        ),
    ],
)
def test_what_is_no_certificate_is_said_plainly(text, message):
    with pytest.raises(CertificateError, match=message):
        MemberCertificate.from_json(text)
    with pytest.raises(CertificateError):
        Opening.from_json(text)


def test_the_command_tells_what_was_opened_and_checks_it(tmp_path):
    from typer.testing import CliRunner

    from fedegoists.cli import app

    commitment = Commitment("c", example().certificate, SECRET)
    commitment.member_certificate("North").save(tmp_path / "north.json")
    commitment.opening().save(tmp_path / "opening.json")
    for file in ("north.json", "opening.json"):
        path = str(tmp_path / file)
        right = CliRunner().invoke(app, ["verify", path, "--commitment", commitment.digest])
        assert right.exit_code == 0, right.output
        wrong = CliRunner().invoke(app, ["verify", path, "--commitment", "0" * 64])
        assert wrong.exit_code == 1

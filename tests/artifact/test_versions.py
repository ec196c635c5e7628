"""What another version has written is refused with a word about its version."""

import json

import pytest

from graphveil.artifact import load
from graphveil.checkpoint.folder import State
from graphveil.errors import InvalidInput
from graphveil.privacy.certificate import Certificate
from graphveil.validate import render_checksummed


def test_an_artifact(tmp_path):
    (tmp_path / "manifest.json").write_bytes(render_checksummed("graphveil-artifact/1", {"files": {}}))
    with pytest.raises(InvalidInput, match="another version of graphveil"):
        load(tmp_path)


def test_a_checkpoint():
    with pytest.raises(InvalidInput, match="another version of graphveil"):
        State.parse(render_checksummed("graphveil-checkpoint/1", {}))


def test_a_certificate():
    for other in (3, 5):
        with pytest.raises(InvalidInput, match="another version of graphveil"):
            Certificate.from_json(json.dumps({"schema": f"graphveil-certificate/{other}"}))
    with pytest.raises(InvalidInput, match="must be graphveil-certificate/4"):
        Certificate.from_json(json.dumps({"schema": "something"}))

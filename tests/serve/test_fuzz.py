"""The service against its own description, fuzzed by schemathesis."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("schemathesis", reason="needs the extra: pip install 'graphveil[test]'")


@pytest.mark.slow
def test_it_is_as_described(service, tmp_path):
    # Among the checks is that the same requests are refused without this token.
    token = service.tokens.of_operator()
    program = Path(sys.executable).with_name("schemathesis")
    words = ["--checks", "all", "--max-examples", "15", "--seed", "1", "--header", f"Authorization: Bearer {token}"]
    command = [str(program), "run", f"{service.url}/openapi.json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-500:]
    assert "4/4" in done.stdout

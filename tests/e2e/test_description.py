"""Signaling does what `/openapi.json` says: Schemathesis derives requests from it and judges what it answers."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firsthop.stack import KEY, Stack

HERE = Path(__file__).parent
SECONDS = 280


@pytest.mark.timeout(300)
def test_signaling_does_what_its_description_says(stack: Stack, tmp_path: Path) -> None:
    # A key for all of it, and as many calls as there are offers in a moment.
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    scopes = 'scopes = ["calls", "secrets", "sideband", "admin"]'
    (tmp_path / "api-keys.toml").write_text(f'[[key]]\nname = "test"\nsha256 = "{digest}"\n{scopes}\n')
    stack.signaling_settings["address-rate"] = "off"
    stack.transceiver_settings["sessions-per-worker"] = "5000"
    stack.start()

    program = Path(sys.executable).with_name("schemathesis")
    settings = ["--config-file", HERE / "schemathesis.toml"]
    options = ["--header", f"Authorization: Bearer {KEY}", "--no-color"]
    command = stack.bed.client.command(program, *settings, "run", f"{stack.url}/openapi.json", *options)
    hooks = {"SCHEMATHESIS_HOOKS": "firsthop.described", "PYTHONPATH": str(HERE)}
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | hooks, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0

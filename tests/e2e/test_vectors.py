"""The golden vectors are what their generators write, which share no code with the programs."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("crate", ["shared", "signaling"])
def test_golden_vectors_are_what_their_generator_writes(crate: str, tmp_path: Path) -> None:
    folder = REPOSITORY / crate / "vectors"
    subprocess.run([sys.executable, folder / "generate.py", tmp_path], check=True)
    kept = {file.name: file.read_text() for file in folder.glob("*.json")}
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == kept

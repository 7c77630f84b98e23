"""The examples run as they are, on a broker and a home of their own."""

import os
import subprocess
import sys
from pathlib import Path

from respool.local import broker
from respool.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_time_travel_in_python(tmp_path: Path, respool: str) -> None:
    script = EXAMPLES / "time_travel.py"
    environment = {**os.environ, "RESPOOL_HOME": str(tmp_path / "home")}

    def run(*command: str) -> str:
        result = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    with broker.running(Settings(home=tmp_path / "home")):
        docstring = script.read_text(encoding="utf-8").split('"""')[1]
        generate = [line.split()[1:] for line in docstring.splitlines() if line.startswith("    respool generate")]
        assert len(generate) == 2
        for arguments in generate:
            run(respool, *arguments)
        output = run(sys.executable, str(script))
    rewind, _, rest = output.partition("verdict")
    assert "Next batch   3" in rewind
    assert "count 18 → 19" in rest
    assert "count 19 → 20" in rest
    assert "4 wrong, 0 missing, 0 " in rest
    assert "0 wrong, 0 missing, 0 " in rest.partition("published\n")[2]

"""Run the NeMo RL tests on checkouts and record what was verified; or check that the record is not older than the code.

python tests/nemo_rl/verify.py CHECKOUT[:CHECKOUT]   run, then write verified.json (make test-nemo)
python tests/nemo_rl/verify.py --check               exit code 1 when the plug-in changed since (make check)
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_name("verified.json")
CODE = "gdpo_nemo/backends/nemo_rl"


def code_hash() -> str:
    """SHA-256 over names and contents of the code that the record vouches for."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / CODE).rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def run(checkout: Path) -> dict[str, int | str]:
    """All tests on one checkout; counts, and the commit."""
    environment = os.environ | {"NEMO_RL_PATH": str(checkout), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "tests/nemo_rl", f"--junitxml={report}"]
        command += ["-p", "no:cacheprovider"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", flush=True)
    total, failed, errors, skipped = (int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped"))
    commit = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    counts = {"passed": total - failed - errors - skipped, "failed": failed + errors, "skipped": skipped}
    return {"commit": commit.stdout.strip(), **counts}


def check() -> int:
    """0 when the record vouches for the code as it is."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if record.get("code_sha256") == code_hash():
        return 0
    print(f"{CODE} changed since {RECORD.name} was written; run make test-nemo NEMO_RL_PATH=checkout:checkout")
    return 1


def main() -> int:
    """See the module."""
    if sys.argv[1:] == ["--check"]:
        return check()
    checkouts = [Path(part).resolve() for part in (sys.argv[1] if sys.argv[1:] else "").split(os.pathsep) if part]
    if not checkouts:
        print("name one or more NeMo RL checkouts: make test-nemo NEMO_RL_PATH=checkout[:checkout]")
        return 2
    before = code_hash()
    with ThreadPoolExecutor(max_workers=2) as pool:  # each mostly waits for one process at a time
        results = list(pool.map(run, checkouts))
    for result in results:
        print("NeMo RL {commit}: {passed} passed, {failed} failed, {skipped} skipped".format(**result))
    if any(result["failed"] or not result["passed"] for result in results):
        return 1
    RECORD.write_text(json.dumps({"code_sha256": before, "nemo_rl": results}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

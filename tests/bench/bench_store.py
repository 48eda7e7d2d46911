"""How long a million score rows take to read as arrays, and how much memory: ``python tests/bench/bench_store.py``."""

import resource
import tempfile
import time
from pathlib import Path

from gdpo_nemo.evaluation.store import EvaluationStore

QUESTIONS, SAMPLES = 62_500, 16


def main():
    with tempfile.TemporaryDirectory() as folder:
        header = {"benchmark": {"name": "bench"}, "grader": "exact", "model": {}, "sampling": {}}
        store = EvaluationStore.create(Path(folder) / "bench", header | {"samples_per_question": SAMPLES})
        store.write_questions({"row_id": f"bench/{q}", "messages": [], "gold": "1"} for q in range(QUESTIONS))
        values, reasons = {"correct": 1.0, "length": 0.0}, {"correct": ["match"], "length": []}
        for q in range(QUESTIONS):
            if q % 1000 == 0:
                some = range(q, min(q + 1000, QUESTIONS))
                keys = ({"row_id": f"bench/{n}", "index": i} for n in some for i in range(SAMPLES))
                store.append_scores(key | {"values": values, "reasons": reasons} for key in keys)
        started = time.process_time()
        matrix = store.score_matrix()
        seconds = time.process_time() - started
        assert matrix.scored_Q_N.all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{QUESTIONS * SAMPLES:,} score rows as arrays: {seconds:.1f} s of one core, peak {peak:.2f} GiB")


if __name__ == "__main__":
    main()

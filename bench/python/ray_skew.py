#!/usr/bin/env python3
"""Rows of very unequal length over two Ray actors of one core each: redline.ray.generate_table against halves of the table, in turn.

  python bench/python/ray_skew.py [MODEL] [--rows 1000] [--longest 600] [--exponent 1.5] [--rounds 3]

The lengths of the texts are drawn from Zipf's distribution, P(n) ~ 1 / n^exponent, and the table is sorted by them, longest first. Both
run in the same actors with as many rows at once; halves never move a row. The texts are compared first. The ideal is the same for both:
the work of the two actors (the time in which each had rows), over two, of the run in which that was least. Needs ray and pyarrow.
"""
import argparse
import pathlib
import random
import statistics
import tempfile

import ray

import redline.ray
from redline._row_schedule import RowSchedule


class Halves(RowSchedule):
    """Equal numbers of consecutive rows for each actor, in the order of the table."""

    def _divide(self, rows):
        each = -(-len(rows) // len(self._actors))
        for i, actor in enumerate(self._actors.values()):
            actor.queue.extend(rows[i * each : (i + 1) * each])

    def _move_to(self, name, now):
        pass


SCHEDULES = {"halves": Halves, "generate_table": RowSchedule}


def run(schedule, rows, model):
    redline.ray.RowSchedule = SCHEDULES[schedule]
    with tempfile.TemporaryDirectory() as folder:
        result = redline.ray.generate_table(rows, pathlib.Path(folder) / "out", model, actors=2, cpus_per_actor=1, dtype="f32",
                                            temperature=0, ignore_eos=True, progress=False)
        return result, result.read()["text"].to_pylist()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="redline-tales")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--longest", type=int, default=600)
    parser.add_argument("--exponent", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    lengths = range(1, args.longest + 1)
    drawn = random.Random(1).choices(lengths, [n**-args.exponent for n in lengths], k=args.rows)
    rows = [{"prompt": f"The dog {i}", "max_tokens": n} for i, n in enumerate(sorted(drawn, reverse=True))]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    results, expected = {name: [] for name in SCHEDULES}, None
    for _ in range(args.rounds):
        for name, found in results.items():
            result, texts = run(name, rows, args.model)
            if texts != (expected := expected or texts):
                raise SystemExit(f"{name}: the texts differ")
            found.append(result)
            print(f"{name}: actors busy {', '.join(f'{a.busy_s:.2f}' for a in result.actors)} s", flush=True)
    ray.shutdown()
    ideal = min(sum(a.busy_s for a in result.actors) for found in results.values() for result in found) / 2
    tokens, half = sum(drawn), sum(row["max_tokens"] for row in rows[: args.rows // 2])
    print(f"{args.rows} rows, {tokens} tokens, the longest {rows[0]['max_tokens']}, the first half {100 * half / tokens:.0f} %; "
          f"ideal split {ideal:.2f} s")
    for name, found in results.items():
        ends = [max(a.busy_s for a in result.actors) for result in found]
        middle = found[ends.index(statistics.median_low(ends))]
        print(f"{name:14} {statistics.median(ends):6.2f} s ({min(ends):.2f} .. {max(ends):.2f}), {statistics.median(ends) / ideal:.2f} of "
              f"the ideal split; actors busy {', '.join(f'{a.busy_s:.2f}' for a in middle.actors)} s, {middle.moved} rows moved, "
              f"{tokens / statistics.median(ends):.0f} tokens/s")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Rows of unequal length over two Ray actors of one core each: redline.ray.generate_table against halves of the table.

  python bench/python/ray_skew.py [MODEL] [--rows 200]

Lengths follow Zipf's law. The texts are compared first. The ideal is the work of both actors divided equally: the sum of the times in
which each had rows, over two. Needs ray and pyarrow.
"""
import argparse
import pathlib
import tempfile
import time

import ray

import redline.ray


class Half:
    """A static split: one actor, its half of the rows as one batch after the other."""

    def __init__(self, model):
        import os

        import redline

        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[ray.get_runtime_context().get_actor_name() == "second"]})
        self.model = redline.Model(model, threads=1, dtype="f32")

    def run(self, rows):
        begin = time.perf_counter()
        streams = [self.model.generate(row["prompt"], max_tokens=row["max_tokens"], temperature=0, ignore_eos=True, stream=True)
                   for row in rows]
        texts = [stream.completion.text for stream in streams]
        return texts, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="redline-tales")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--longest", type=int, default=600)
    args = parser.parse_args()
    rows = [{"prompt": f"The dog {i}", "max_tokens": max(1, int(args.longest / (i + 1) ** 0.7))} for i in range(args.rows)]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    actor = ray.remote(num_cpus=1)(Half)
    halves = [actor.options(name=name).remote(args.model) for name in ("first", "second")]
    parts = rows[: args.rows // 2], rows[args.rows // 2 :]
    ray.get([half.run.remote([{"prompt": "x", "max_tokens": 1}]) for half in halves])
    begin = time.perf_counter()
    static = ray.get([half.run.remote(part) for half, part in zip(halves, parts)])
    static_s = time.perf_counter() - begin
    expected = [text for texts, _ in static for text in texts]
    for half in halves:
        ray.kill(half)
    with tempfile.TemporaryDirectory() as folder:
        result = redline.ray.generate_table(rows, pathlib.Path(folder) / "out", args.model, actors=2, cpus_per_actor=1, dtype="f32",
                                            temperature=0, ignore_eos=True, progress=False)
        if result.read()["text"].to_pylist() != expected:
            raise SystemExit("the texts differ")
    busy = [a.busy_s for a in result.actors]
    tokens = sum(row["max_tokens"] for row in rows)
    print(f"{args.rows} rows, {tokens} tokens, longest {rows[0]['max_tokens']}")
    ideal = sum(seconds for _, seconds in static) / 2
    print(f"halves          {static_s:6.1f} s, {static_s / ideal:.2f} of their ideal split; actors busy "
          f"{', '.join(f'{s:.1f}' for _, s in static)} s")
    print(f"generate_table  {max(busy):6.1f} s, {max(busy) / (sum(busy) / 2):.2f} of its ideal split; actors busy "
          f"{', '.join(f'{s:.1f}' for s in busy)} s, {result.moved} rows moved, {tokens / max(busy):.0f} tokens/s")
    ray.shutdown()


if __name__ == "__main__":
    main()

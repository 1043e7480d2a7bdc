#!/usr/bin/env python3
"""What the Python package adds to a call: python bench/python/call_cost.py [MODEL]

Medians of the package's own work, in microseconds, without the model's: preparing a request, reading its result, reading a chunk
of a stream whose pieces are there. And the time of `import redline` in a new process over that of an empty program, and of the
extension module and its library, which the first use loads.
"""
import statistics
import subprocess
import sys
import time

import redline
from redline.model import _Job
from redline.sampling import check_names, generate_options

LIMITS = {"call": 50.0, "chunk": 20.0}
OPTIONS = {"max_tokens": 1, "temperature": 0}


def median_us(function, runs=2000):
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def chunk_us(model, ids):
    stream = model.generate(ids, max_tokens=300, temperature=0, ignore_eos=True, stream=True)
    stream._generation.wait()
    begin = time.perf_counter()
    chunks = len(list(stream))
    return 1e6 * (time.perf_counter() - begin) / chunks


def process_ms(code, runs=7):
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def main():
    model = redline.Model(sys.argv[1] if len(sys.argv) > 1 else "redline-tales")
    ids, handle = model.tokenizer.encode("Once"), model._use()
    generation = model._submit([ids], OPTIONS, False, None, None, "auto")
    generation.wait()
    parts = {
        "names": median_us(lambda: check_names(list(OPTIONS), "generate")),
        "options": median_us(lambda: generate_options(handle, OPTIONS)),
        "prompt": median_us(lambda: _Job(handle, [ids], 1, None, None, "auto")),
        "result": median_us(lambda: generation.completion(0)),
    }
    for name, value in parts.items():
        print(f"{name:8} {value:6.1f} us")
    print(f"call     {sum(parts.values()):6.1f} us, limit {LIMITS['call']:.0f}")
    print(f"chunk    {min(chunk_us(model, ids) for _ in range(3)):6.1f} us, limit {LIMITS['chunk']:.0f}")
    print(f"import   {process_ms('import redline') - process_ms('pass'):6.1f} ms, limit 150")
    print(f"loaded   {process_ms('import redline; redline.devices()') - process_ms('pass'):6.1f} ms, with the extension module")


if __name__ == "__main__":
    main()

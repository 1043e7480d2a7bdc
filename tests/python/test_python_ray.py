"""redline.ray: the stage as Ray Data calls it, the schedule of rows on a simulated clock, and both with Ray where it is installed."""
import json
import os
import random
import signal

import numpy as np
import pytest
import redline.ray
from redline._row_schedule import Row, RowSchedule


def test_columns(root, model):
    generate = redline.ray.Generator(str(root / "assets/redline-tales"), dtype="f32", threads=2, temperature=0, max_tokens=8)
    batch = {"id": np.arange(3), "prompt": np.array(["Once upon a time", "The dog", "One day"]), "max_tokens": np.array([2, 5, 8])}
    rows = generate(batch)
    assert list(rows["id"]) == [0, 1, 2] and rows["error"] == ["", "", ""]
    assert [int(n) for n in rows["completion_tokens"]] == [2, 5, 8]
    assert rows["text"] == [model.generate(str(p), temperature=0, max_tokens=int(n)).text
                            for p, n in zip(batch["prompt"], batch["max_tokens"])]
    with pytest.raises(ValueError, match='no column "prompt"; they have question'):
        generate({"question": ["x"]})


def test_a_row_that_cannot_run_does_not_stop_the_others(root):
    generate = redline.ray.Generator(str(root / "assets/redline-tales"), prompt_column="q", output_column="a", max_tokens=2)
    rows = generate({"q": ["Once", "word " * 5000, "One"]})
    assert rows["a"][1] == "" and "context" in rows["error"][1] and rows["finish_reason"][1] == "error"
    assert rows["a"][0] and rows["a"][2]
    with pytest.raises(ValueError, match="repeat the row"):
        redline.ray.Generator(str(root / "assets/redline-tales"), n=2)


# ---- The schedule ----


def simulate(rows, costs, slots, speeds, dies=None):
    """Actors whose rows in progress share their speed. The end of each, the rows in the order in which they ended, the schedule."""
    schedule = RowSchedule(rows, range(len(speeds)))
    running, ends, done, now = {actor: {} for actor in range(len(speeds))}, {}, [], 0.0
    while schedule.unfinished:
        for actor, rows_of in running.items():
            while len(rows_of) < slots and (row := schedule.take(actor, now)) is not None:
                rows_of[row.index] = [row, costs[row.index]]
        events = [(left * len(rows_of) / speeds[actor], actor, row)
                  for actor, rows_of in running.items() for row, left in rows_of.values()]
        assert events, "rows are left, and nobody takes them"
        passed, actor, row = min(events, key=lambda event: event[0])
        now += passed
        for other, rows_of in running.items():
            for entry in rows_of.values():
                entry[1] -= passed * speeds[other] / len(rows_of)
        del running[actor][row.index]
        ends[actor] = now
        done.append(row.index)
        schedule.finish(actor, row, row.length // 4, int(costs[row.index]))
        if dies is not None and len(done) == dies:
            lost = schedule.remove(actor)
            assert {r.index for r in lost} == set(running.pop(actor))
            schedule.add("new")
            running["new"] = {}
            speeds = {**dict(enumerate(speeds)), "new": speeds[actor]}
    return max(ends.values()), done, schedule


def zipf(count, shape, rng=None):
    """Lengths by rank: most rows are short, few are long."""
    lengths = [max(1, int(500 / rank**shape)) for rank in range(1, count + 1)]
    if rng is not None:
        rng.shuffle(lengths)
    return lengths


@pytest.mark.parametrize("knows_limits", [True, False])
@pytest.mark.parametrize("slots", [1, 4, 16])
@pytest.mark.parametrize("order", ["longest first", "random"])
def test_skewed_rows_end_together(knows_limits, slots, order):
    """At most 1.15 of the ideal split; halves of the table take 1.5 and more where it is sorted, as tables often are."""
    costs = zipf(400, 0.7, None if order == "longest first" else random.Random(1))
    rows = [Row(i, 40, cost if knows_limits else 0) for i, cost in enumerate(costs)]
    end, done, schedule = simulate(rows, costs, slots, [1, 1])
    ideal = sum(costs) / 2
    assert end <= 1.15 * ideal
    assert sorted(done) == list(range(400))
    if order == "longest first":
        assert sum(costs[:200]) >= 1.5 * ideal
        assert knows_limits or schedule.moved > 50


def test_a_slow_actor_gets_fewer_rows():
    costs = zipf(400, 0.7, random.Random(2))
    end, _, _ = simulate([Row(i, 40, cost) for i, cost in enumerate(costs)], costs, 4, [1, 3])
    assert end <= 1.15 * sum(costs) / 4


@pytest.mark.parametrize("dies", [1, 50, 199])
def test_rows_of_a_dead_actor_are_taken_by_the_others(dies):
    costs = zipf(200, 0.7, random.Random(3))
    _, done, schedule = simulate([Row(i, 40, cost) for i, cost in enumerate(costs)], costs, 4, [1, 1], dies)
    assert sorted(done) == list(range(200)) and schedule.unfinished == 0


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("actors", [1, 2, 5])
def test_few_rows(count, actors):
    _, done, _ = (0, [], None) if not count else simulate([Row(i, 0) for i in range(count)], [3] * count, 2, [1] * actors)
    assert sorted(done) == list(range(count))


def test_costs_are_corrected_by_what_is_seen():
    costs = RowSchedule([], []).costs
    short, long = Row(0, 20, 100), Row(1, 2000, 100)
    assert costs.predict(long) > costs.predict(short) > 99
    for i in range(20):
        costs.seen(Row(i, 20, 100), 5, 10, prefill_ms=5, decode_ms=100)
        costs.seen(Row(i, 2000, 100), 500, 100, prefill_ms=500, decode_ms=1000)
    assert costs.prompt_weight == pytest.approx(0.1, rel=0.01)
    assert 10 < costs.predict(short) < 25 and 120 < costs.predict(long) < 155


# ---- With Ray ----


@pytest.fixture(name="ray", scope="module")
def ray_fixture():
    ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "ray[data,serve]" pyarrow')
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    # Actors have the environment of this process: PYTHONPATH and REDLINE_LIBRARY of conftest.py.
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()


def table(count, seed=4):
    lengths = zipf(count, 0.7, random.Random(seed))
    return [{"id": f"row {i}", "prompt": f"The dog {i}", "max_tokens": max(1, n // 8)} for i, n in enumerate(lengths)]


def settings(root):
    return dict(model=str(root / "assets/redline-tales"), dtype="f32", temperature=0, ignore_eos=True, progress=False, actors=2,
                cpus_per_actor=1, in_flight=4)


def check(result, rows, model, sample=5):
    """Every row once, with the text that the model gives alone."""
    out = result.read().to_pylist()
    assert [row["row"] for row in out] == list(range(len(rows)))
    for row, given in zip(out, rows):
        assert {name: row[name] for name in given} == given and row["error"] == "" and row["finish_reason"] == "length"
        assert row["completion_tokens"] == given["max_tokens"]
    for row in out[:: max(1, len(out) // sample)]:
        expected = model.generate(row["prompt"], temperature=0, ignore_eos=True, max_tokens=row["max_tokens"])
        assert row["text"] == expected.text


def test_a_table(ray, root, model, tmp_path):
    rows, seen = table(60), []
    result = redline.ray.generate_table(rows, tmp_path / "out", **settings(root), on_progress=seen.append, rows_per_part=25)
    check(result, rows, model)
    assert (result.rows, result.resumed, result.retried, result.failed) == (60, 0, 0, 0)
    assert len(seen) == 60 and seen[-1].done == seen[-1].total == 60
    first, second = result.actors
    assert first.pid != second.pid and len(first.cores) == len(second.cores) == 1
    assert os.cpu_count() < 2 or first.cores != second.cores
    assert first.rows + second.rows == 60 and first.rows and second.rows
    assert first.tokens + second.tokens == sum(row["max_tokens"] for row in rows)
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == 3
    assert "<table>" in result._repr_html_()
    # Nothing is left to do.
    again = redline.ray.generate_table(rows, tmp_path / "out", **settings(root))
    assert again.resumed == 60 and again.actors == ()
    with pytest.raises(redline.InvalidArgument, match=r"other settings \(options\)"):
        redline.ray.generate_table(rows, tmp_path / "out", **{**settings(root), "temperature": 0.5})
    with pytest.raises(redline.InvalidArgument, match=r"other settings \(input\)"):
        redline.ray.generate_table(rows[1:], tmp_path / "out", **settings(root))


def test_a_killed_actor_loses_and_doubles_nothing(ray, root, model, tmp_path):
    rows, killed = table(80, 5), []

    def kill_one(progress):
        if progress.done == 40 and not killed:
            busiest = max(progress.actors, key=lambda actor: actor.running)
            killed.append(busiest.pid)
            os.kill(busiest.pid, signal.SIGKILL)

    result = redline.ray.generate_table(rows, tmp_path / "out", **settings(root), on_progress=kill_one, rows_per_part=7)
    check(result, rows, model)
    assert len(killed) == 1 and result.retried >= 1 and len(result.actors) == 3


def test_an_interrupted_table_goes_on(ray, root, model, tmp_path):
    rows = table(40, 6)

    def stop(progress):
        if progress.done == 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        redline.ray.generate_table(rows, tmp_path / "out", **settings(root), on_progress=stop, rows_per_part=4)
    (tmp_path / "out/.part-99999.parquet.tmp").write_bytes(b"half a file")
    result = redline.ray.generate_table(rows, tmp_path / "out", **settings(root))
    assert result.resumed == 15
    check(result, rows, model)


def test_a_row_that_kills_actors_is_given_up(ray, root, tmp_path, monkeypatch):
    class Deadly(redline.ray._Worker):
        async def generate(self, prompt, sampling):
            if prompt == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            return await super().generate(prompt, sampling)

    monkeypatch.setattr(redline.ray, "_Worker", Deadly)
    rows = [{"prompt": "die" if i == 3 else "Once"} for i in range(8)]
    result = redline.ray.generate_table(rows, tmp_path / "out", **{**settings(root), "in_flight": 1}, max_tokens=2, max_attempts=2)
    out = result.read().to_pylist()
    assert [row["row"] for row in out] == list(range(8)) and result.failed == 1
    assert [i for i, row in enumerate(out) if row["error"]] == [3] and "2 actors died" in out[3]["error"]


def test_inputs_and_bad_input(ray, root, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    rows = [{"question": "Once"}, {"question": "word " * 5000}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    inputs = {"jsonl": tmp_path / "in.jsonl", "parquet": tmp_path / "in.parquet", "dataset": ray.data.from_items(rows)}
    for name, given in inputs.items():
        result = redline.ray.generate_table(given, tmp_path / name, **settings(root), prompt_column="question", max_tokens=2)
        out = result.read().to_pylist()
        assert out[0]["text"] and "context" in out[1]["error"] and result.failed == 1
    run = redline.ray.generate_table
    with pytest.raises(redline.InvalidArgument, match='no column "prompt"; they have question'):
        run(rows, tmp_path / "x", **settings(root))
    with pytest.raises(redline.InvalidArgument, match="more than the 2 of the cluster"):
        run([{"prompt": "x"}], tmp_path / "x", **{**settings(root), "actors": 3})
    with pytest.raises(redline.InvalidArgument, match="columns that the output adds: text"):
        run([{"prompt": "x", "text": "y"}], tmp_path / "x", **settings(root))
    with pytest.raises(redline.FileError, match="no such file"):
        run(tmp_path / "none.jsonl", tmp_path / "x", **settings(root))
    with pytest.raises(redline.InvalidArgument, match="in_flight is 0"):
        run([{"prompt": "x"}], tmp_path / "x", **{**settings(root), "in_flight": 0})
    (tmp_path / "other").mkdir()
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "other/part-00000.parquet")
    with pytest.raises(redline.InvalidArgument, match="Parquet files of something else"):
        run([{"prompt": "x"}], tmp_path / "other", **settings(root))


def test_a_stage_of_ray_data(ray, root, model, tmp_path):
    rows = table(20, 7)
    stage = ray.data.from_items(rows).map_batches(
        redline.ray.Generator, batch_size=5, concurrency=2, num_cpus=1,
        fn_constructor_kwargs={"model": str(root / "assets/redline-tales"), "dtype": "f32", "temperature": 0, "ignore_eos": True})
    out = sorted(stage.take_all(), key=lambda row: int(row["id"].split()[1]))
    assert [row["id"] for row in out] == [row["id"] for row in rows]
    assert [row["completion_tokens"] for row in out] == [row["max_tokens"] for row in rows]


def test_a_deployment_of_ray_serve(ray, root, model):
    serve = pytest.importorskip("ray.serve", reason='Ray Serve is not installed: pip install "ray[serve]"')
    import httpx

    application = redline.ray.deployment(str(root / "assets/redline-tales"), num_cpus=1, dtype="f32", temperature=0, max_tokens=6)
    handle = serve.run(application, route_prefix="/tales")
    try:
        expected = model.generate("Once upon a time", temperature=0, max_tokens=6)
        found = handle.generate.remote("Once upon a time").result(timeout_s=60)
        assert found["text"] == expected.text and found["usage"]["completion_tokens"] == 6
        assert "".join(handle.options(stream=True).stream.remote("Once upon a time")) == expected.text
        together = [handle.generate.remote(f"The dog {i}", max_tokens=3) for i in range(8)]
        assert [t.result(timeout_s=60)["text"] for t in together] == [
            model.generate(f"The dog {i}", temperature=0, max_tokens=3).text for i in range(8)]
        url = "http://127.0.0.1:8000/tales"
        assert httpx.post(url, json={"prompt": "Once upon a time"}, timeout=60).json()["text"] == expected.text
        with httpx.stream("POST", url, json={"prompt": "Once upon a time", "stream": True}, timeout=60) as response:
            lines = [json.loads(line) for line in response.iter_lines()]
        assert "".join(line["text"] for line in lines) == expected.text and len(lines) > 2
        for body, message in (({"prompt": "x", "max_token": 2}, "use max_tokens"), ({}, '"prompt"'),
                              ({"prompt": "x", "top_p": 5}, "top_p")):
            answer = httpx.post(url, json=body, timeout=60)
            assert answer.status_code == 400 and message in answer.json()["error"]
    finally:
        serve.shutdown()

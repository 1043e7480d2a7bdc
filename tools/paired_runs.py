"""Programs that measure the same model in turn: command line and output parser of each, thread placement, statistics.

For tools/compare and tools/regress; the standard library only.
"""
import dataclasses
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH_STEPS = 16  # decoded per stream by llama-batched-bench; `redline bench` reports its own number in "tokens"


class Refusal(Exception):
    """The comparison is not possible; the message gives the reason and the fix. `code` is the exit status."""

    def __init__(self, message, code=3):
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True, order=True)
class Row:
    """One thing to measure. `tokens` of a batch row is 0: programs differ in the number of steps they run."""
    phase: str  # "prefill", "decode", "batch"
    depth: int
    tokens: int
    streams: int = 1

    def __str__(self):
        what = f"{self.streams} streams" if self.phase == "batch" else f"{self.phase} {self.tokens}"
        return what + (f" at {self.depth}" if self.depth else "")


@dataclasses.dataclass
class Request:
    prefill: list
    decode: list
    depth: list
    batch: list
    threads: int
    repeat: int = 1

    def rows(self):
        rows = [Row("prefill", d, n) for d in self.depth for n in self.prefill]
        rows += [Row("decode", d, n) for d in self.depth for n in self.decode]
        return rows + [Row("batch", d, 0, s) for d in self.depth for s in self.batch]

    @staticmethod
    def of_rows(rows, threads, repeat=1):
        """The smallest request that covers these rows; it may cover more, because depths and lengths are combined."""
        pick = lambda phase, name: sorted({getattr(r, name) for r in rows if r.phase == phase})
        return Request(pick("prefill", "tokens"), pick("decode", "tokens"), sorted({r.depth for r in rows}),
                       pick("batch", "streams"), threads, repeat)


@dataclasses.dataclass
class Answer:
    """The output of one run of one program."""
    speeds: dict  # Row -> tokens per second
    states: list = dataclasses.field(default_factory=list)  # machine state as reported by the program
    faults: dict = dataclasses.field(default_factory=dict)  # Row -> why its speed is not credible
    facts: dict = dataclasses.field(default_factory=dict)   # build and instruction set of the program


def joined(numbers):
    return ",".join(str(n) for n in numbers)


def number(record, name, what):
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{what} has {name} = {value!r} where a number above 0 should stand")
    return float(value)


def integer(record, name, default=None):
    value = record.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} = {value!r} is not a whole number")
    return value


class Redline:
    kind = "redline"
    hint = "is it this project's redline? Build it: cmake --preset release && cmake --build --preset release"
    phases = ("prefill", "decode", "batch")

    @staticmethod
    def command(path, model, request, is_checked):
        command = [path, "bench", *model]
        for flag in ("prefill", "decode", "depth", "batch"):
            if getattr(request, flag):
                command += [f"--{flag}", joined(getattr(request, flag))]
        command += ["--repeat", str(request.repeat), "--threads", str(request.threads), "--json"]
        return command if is_checked else [*command, "--no-check"]

    @staticmethod
    def parse(stdout, _stderr):
        report = json.loads(stdout)
        if not isinstance(report, dict) or not isinstance(report.get("rows"), list):
            raise ValueError('there is no list "rows"')
        answer = Answer({}, facts={"isa": report.get("isa"), "machine": report.get("machine")})
        for r in report["rows"]:
            phase = r.get("phase")
            if phase not in Redline.phases:
                continue
            row = Row(phase, integer(r, "depth"), 0 if phase == "batch" else integer(r, "tokens"), integer(r, "streams", 1))
            if r.get("skipped"):
                answer.faults[row] = f"skipped: {r['skipped']}"
                continue
            answer.speeds[row] = number(r, "tokens_per_s", str(row))
            if r.get("error"):
                answer.faults[row] = str(r["error"])
            answer.states += [r[name] for name in ("state_before", "state_after") if isinstance(r.get(name), dict)]
        return answer


class LlamaBench:
    """llama.cpp's llama-bench, and ik_llama.cpp's."""
    kind = "llama-bench"
    hint = "is it llama.cpp's llama-bench? It must understand -o json"
    phases = ("prefill", "decode")

    @staticmethod
    def command(path, model, request, _is_checked):
        # -p 0 and -n 0 omit a phase; the defaults are 512 and 128.
        command = [path, "-m", *model, "-p", joined(request.prefill or [0]), "-n", joined(request.decode or [0])]
        if request.depth != [0]:  # not every fork has the flag
            command += ["-d", joined(request.depth)]
        return [*command, "-t", str(request.threads), "-fa", "1", "-r", str(request.repeat), "-o", "json"]

    @staticmethod
    def parse(stdout, _stderr):
        report = json.loads(stdout)
        if not isinstance(report, list) or not report:
            raise ValueError("there is no list of tests")
        answer = Answer({}, facts={k: report[0].get(k) for k in ("build_commit", "model_type", "cpu_info")})
        for r in report:
            prompt, made, depth = integer(r, "n_prompt"), integer(r, "n_gen"), integer(r, "n_depth", 0)
            if (prompt > 0) == (made > 0):
                continue  # prompt and generation combined: not one of our rows
            row = Row("prefill", depth, prompt) if prompt else Row("decode", depth, made)
            answer.speeds[row] = number(r, "avg_ts", str(row))
        return answer


class LlamaBatchedBench:
    """llama.cpp's llama-batched-bench: several streams."""
    kind = "llama-batched-bench"
    hint = "is it llama.cpp's llama-batched-bench, or ik_llama.cpp's?"
    phases = ("batch",)

    @staticmethod
    def command(path, model, request, _is_checked):
        prompts = [max(1, d) for d in request.depth]
        room = max(request.batch) * (max(prompts) + BATCH_STEPS)
        return [path, "-m", *model, "-c", str(room), "-npp", joined(prompts), "-ntg", str(BATCH_STEPS), "-npl",
                joined(request.batch), "-t", str(request.threads), "-fa", "on", "--output-format", "jsonl"]

    @staticmethod
    def parse(stdout, stderr):
        lines = (stdout + "\n" + stderr).splitlines()
        results = [json.loads(line) for line in lines if line.startswith("{")] or LlamaBatchedBench.table(lines)
        if not results:
            raise ValueError("there is no line of JSON and no table")
        answer = Answer({})
        for r in results:
            prompt = integer(r, "pp")
            row = Row("batch", 0 if prompt == 1 else prompt, 0, integer(r, "pl"))
            answer.speeds[row] = number(r, "speed_tg", str(row))
        return answer

    @staticmethod
    def table(lines):
        """The table that versions without --output-format print, such as ik_llama.cpp's."""
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        wanted = {"PP": "pp", "B": "pl", "S_TG t/s": "speed_tg"}
        if not rows or not set(wanted) <= set(rows[0]):
            return []
        columns = {name: rows[0].index(title) for title, name in wanted.items()}
        return [{name: json.loads(row[at]) for name, at in columns.items()}
                for row in rows[1:] if not row[0].startswith("-") and len(row) == len(rows[0])]


class PythonEngine(Redline):
    """An engine with a Python API: the program is the Python of its virtual environment, the model is its own copy of the
    shape, which --peer-args names (tools/peer_models.py)."""

    @classmethod
    def command(cls, path, _model, request, _is_checked):
        command = [path, str(ROOT / "tools/text_peers.py"), cls.kind]
        for flag in ("prefill", "decode", "depth", "batch"):
            if getattr(request, flag):
                command += [f"--{flag}", joined(getattr(request, flag))]
        return [*command, "--repeat", str(request.repeat), "--threads", str(request.threads)]

    @classmethod
    def parse(cls, stdout, stderr):
        lines = [line for line in stdout.splitlines() if line.startswith('{"isa"')]  # engines print warnings before it
        if not lines:
            raise ValueError("there is no line of JSON")
        return Redline.parse(lines[-1], stderr)


class OpenVino(PythonEngine):
    kind = "openvino"
    hint = 'is it a Python with openvino-genai? --peer-args openvino="--model FOLDER" names the model'


class Vllm(PythonEngine):
    kind = "vllm"
    hint = 'is it a Python with vllm? --peer-args vllm="--model FOLDER" names the model'


class OnnxRuntime(PythonEngine):
    kind = "onnxruntime"
    hint = 'is it a Python with onnxruntime-genai? --peer-args onnxruntime="--model FOLDER" names the model'


KINDS = {kind.kind: kind for kind in (Redline, LlamaBench, LlamaBatchedBench, OpenVino, Vllm, OnnxRuntime)}


def cpus_for(threads):
    """This many of the CPUs that the process may use: one per core before the second hardware thread of any core."""
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= threads <= len(allowed):
        raise Refusal(f"flag --threads: {threads} threads cannot have a CPU each; this process may use {len(allowed)}", 2)
    seen, first, rest = set(), [], []
    for cpu in allowed:
        try:
            core = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
        except OSError:
            core = str(cpu)
        (rest if core in seen else first).append(cpu)
        seen.add(core)
    return (first + rest)[:threads]


def stolen_share(before, after):
    """Share of stolen time in the CPU time between two first lines of /proc/stat."""
    deltas = [int(b) - int(a) for a, b in zip(before.split()[1:9], after.split()[1:9])]
    return deltas[7] / sum(deltas) if len(deltas) == 8 and sum(deltas) > 0 else 0.0


def proc_stat():
    try:
        return pathlib.Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return ""


class Program:
    """One of the programs that run in turn."""

    def __init__(self, label, kind, path, extra=()):
        self.label, self.kind, self.path, self.extra = label, KINDS[kind], str(path), list(extra)
        self.answers = []
        self.runs = []  # for the record: command, seconds, load, stolen
        if not (os.path.isfile(self.path) and os.access(self.path, os.X_OK)):
            raise Refusal(f"{label}: {self.path} is not a program; {self.kind.hint}", 2)

    def rows(self, request):
        return [row for row in request.rows() if row.phase in self.kind.phases]

    def run(self, model, request, cpus, timeout, is_checked=False):
        """Runs once on `cpus` and stores the result. Refusal when it fails or its output cannot be parsed."""
        wanted = self.rows(request)
        if not wanted:
            self.answers.append(Answer({}))
            return
        command = [*self.kind.command(self.path, model, request, is_checked), *self.extra]
        # Redline binds its threads to the CPUs of its affinity mask; OpenMP programs need the places.
        environment = {**os.environ, "OMP_NUM_THREADS": str(request.threads), "OMP_PROC_BIND": "true",
                       "OMP_PLACES": ",".join(f"{{{cpu}}}" for cpu in cpus)}
        load, stat, begin = os.getloadavg()[0], proc_stat(), time.monotonic()
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=timeout,
                                  stdin=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        except subprocess.TimeoutExpired:
            raise Refusal(f"{self.label}: no answer within {timeout} s; ask for less, or raise --timeout\n"
                          f"  command: {shlex.join(command)}") from None
        except OSError as error:
            raise Refusal(f"{self.label}: {self.path} does not start: {error}; {self.kind.hint}") from None
        self.runs.append({"command": command, "seconds": round(time.monotonic() - begin, 3), "load_before": load,
                          "stolen": round(stolen_share(stat, proc_stat()), 4)})
        if done.returncode != 0:
            self.refuse(f"ended with status {done.returncode}", command, done)
        try:
            answer = self.kind.parse(done.stdout, done.stderr)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            self.refuse(f"its output cannot be read: {error}", command, done)
        missing = [str(row) for row in wanted if row not in answer.speeds and row not in answer.faults]
        if missing:
            self.refuse(f"its output lacks {', '.join(missing)}", command, done)
        self.answers.append(answer)

    def refuse(self, what, command, done):
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-4:]
        raise Refusal("\n  ".join([f"{self.label}: {what}; {self.kind.hint}", f"command: {shlex.join(command)}",
                                   *(f"said: {line[:300]}" for line in said)]))

    def speeds(self, row):
        return [a.speeds[row] for a in self.answers if row in a.speeds]

    def fault(self, row):
        """Why a row is not credible: the last reason given in at least half of the runs."""
        faults = [a.faults[row] for a in self.answers if row in a.faults]
        return faults[-1] if 2 * len(faults) >= len(self.answers) and faults else None


def median_interval(values, confidence=0.95):
    """(low, high, coverage): two of the sorted values between which the median of their distribution lies with at least
    that confidence, or the smallest and the largest when there are too few; coverage is the actual confidence.
    The number of values below the median is binomial whatever the distribution (order statistics; David, Nagaraja 2003)."""
    ordered, n = sorted(values), len(values)
    if n == 0:
        raise ValueError("no values")
    tail, below = 0.0, 0.0
    k = 0
    for i in range(1, n // 2 + 1):  # between the i-th smallest and the i-th largest
        below += math.comb(n, i - 1) / 2**n
        if i == 1 or 1 - 2 * below >= confidence:
            k, tail = i, below
    return (ordered[0], ordered[0], 0.0) if k == 0 else (ordered[k - 1], ordered[n - k], 1 - 2 * tail)


@dataclasses.dataclass
class Ratio:
    """Ratio of the speeds of two programs, pair by pair."""
    values: list
    confidence: float = 0.95

    @property
    def median(self):
        return statistics.median(self.values)

    @property
    def interval(self):
        return median_interval(self.values, self.confidence)

    def verdict(self):
        """"undecided" as well when there are too few pairs for the confidence."""
        low, high, coverage = self.interval
        if coverage < self.confidence or low <= 1 <= high:
            return "undecided"
        return "faster" if low > 1 else "slower"

    def record(self):
        low, high, coverage = self.interval
        return {"median": self.median, "min": min(self.values), "max": max(self.values), "low": low, "high": high,
                "coverage": coverage, "verdict": self.verdict(), "pairs": self.values}


def ratio_of(program, peer, row, confidence=0.95):
    """None when one of them does not have the row."""
    pairs = [(a.speeds[row], b.speeds[row]) for a, b in zip(program.answers, peer.answers) if row in a.speeds and row in b.speeds]
    return Ratio([a / b for a, b in pairs], confidence) if pairs else None


def span(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


def table(header, rows):
    """Text columns: the first to the left, the others to the right."""
    cells = [header, *rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]
    return "\n".join("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip()
                     for line in cells)


def speed(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def state_record(programs):
    """Machine state during the runs: load, stolen time, and Redline's samples."""
    runs = [run for program in programs for run in program.runs]
    record = {"load_before": [run["load_before"] for run in runs], "stolen": [run["stolen"] for run in runs]}
    states = [state for program in programs for answer in program.answers for state in answer.states]
    for name in sorted({name for state in states for name in state}):
        values = [s[name] for s in states if isinstance(s.get(name), (int, float))]
        if values:
            record[name] = span(values)
    return record


def state_line(record, cpus):
    parts = [f"load before the runs {min(record['load_before']):.1f}..{max(record['load_before']):.1f}",
             f"stolen by the host up to {100 * max(record['stolen']):.0f} %"]
    parts += [f"{name.replace('_per_s', '/s').replace('_', ' ')} {values['min']:.4g}..{values['max']:.4g}"
              for name, values in record.items() if isinstance(values, dict)]
    return f"machine (CPUs {joined(cpus)}): " + "; ".join(parts)


def whole_numbers(text, least):
    values = [int(part) for part in text.split(",")]
    if not values or min(values) < least or len(set(values)) != len(values):
        raise ValueError
    return sorted(values)


def number_list(least):
    """For argparse: "1,8,512", without repetitions."""
    import argparse

    def parse(text):
        try:
            return whole_numbers(text, least)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of different whole numbers from {least} on") from None
    return parse


def at_least(least):
    import argparse

    def parse(text):
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)
    return parse

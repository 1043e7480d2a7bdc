#!/usr/bin/env python3
"""How many real JSON Schemas are refused as constraints, and whether invalid instances are accepted.

  schema_corpus.py [suite|maskbench]... [--additional] [--relaxed] [--compact] [--every N] [--jobs N] [--top N]
                   [--program FILE] [--cache FOLDER] [--offline] [--json FILE]

suite: the required tests of the JSON-Schema-Test-Suite, drafts 7 and 2020-12. maskbench: the data of MaskBench (Geng et al. 2025,
arXiv:2501.10868). Both are fetched with git at the commits below into the cache ($XDG_CACHE_HOME/redline/json-schema), once.
--additional, --relaxed and --compact are the options of JsonFormat; MaskBench's instances have members that schemas leave open, so
--additional belongs to its figures. Instances have the order of members of the files and Python's default white space.

Prints for each corpus the schemas that are refused, with a histogram of the reasons; the invalid instances that are accepted, those
of schemas with keywords that were left out (--relaxed) apart; and the valid instances that are not accepted: the texts of a constraint
are not all that a schema allows. Exit 1: an invalid instance was accepted although every keyword is enforced.

Needs the program that the tests build: cmake --build build/dev --target json_schema_corpus
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = {  # repository, commit, folders
    "suite": ("https://github.com/json-schema-org/JSON-Schema-Test-Suite.git", "44401e0c046704b476ec9d2e2fccdaee618f259d",
              ["tests/draft7", "tests/draft2020-12"]),
    "maskbench": ("https://github.com/guidance-ai/jsonschemabench.git", "ba103c73756198dd9b149ddc7db7867da7a077f6",
                  ["maskbench/data"]),
}


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "redline" / "json-schema"


def fetch(corpus, cache, offline):
    """The folder with the files of a corpus; None: it is not in the cache, and must not be fetched."""
    repository, commit, folders = SOURCES[corpus]
    folder = cache / corpus / commit
    if (folder / "COMPLETE").exists():
        return folder
    if offline:
        return None
    clone = cache / corpus / "repository"
    clone.mkdir(parents=True, exist_ok=True)
    git = ["git", "-C", str(clone)]
    subprocess.run([*git, "init", "--quiet", "--bare"], check=True)
    url = os.environ.get(f"REDLINE_{corpus.upper()}_REPOSITORY", repository)
    subprocess.run([*git, "fetch", "--quiet", "--depth", "1", url, commit], check=True)
    for path in folders:
        names = subprocess.run([*git, "ls-tree", "--name-only", commit, path + "/"], check=True, capture_output=True, text=True)
        (folder / path).mkdir(parents=True, exist_ok=True)
        for name in names.stdout.splitlines():
            if name.endswith(".json"):
                (folder / name).write_bytes(subprocess.run([*git, "cat-file", "blob", f"{commit}:{name}"], check=True,
                                                           capture_output=True).stdout)
    (folder / "COMPLETE").touch()
    return folder


def cases(corpus, folder, every):
    """(name, schema, [(instance, is valid)]) of a corpus."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        data = json.loads(path.read_text())
        if corpus == "maskbench":
            found.append((path.name, data["schema"], [(t["data"], t["valid"]) for t in data.get("tests", [])]))
        else:
            found += [(f"{path.parent.name}/{path.stem}: {group['description']}", group["schema"],
                       [(t["data"], t["valid"]) for t in group["tests"]]) for group in data]
    return found[::every]


def run_program(program, options, all_cases, jobs):
    """The answer of the program for each case."""
    separators = (",", ":") if "compact" in options else None
    answers, index, lock = [None] * len(all_cases), iter(range(len(all_cases))), threading.Lock()

    def work():
        process = None
        while True:
            with lock:
                at = next(index, None)
            if at is None:
                break
            if process is None:
                process = subprocess.Popen([program, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            _, schema, instances = all_cases[at]
            texts = [json.dumps(value, ensure_ascii=False, separators=separators) for value, _ in instances]
            line = json.dumps({"schema": schema, "instances": texts})
            try:
                process.stdin.write(line.encode() + b"\n")
                process.stdin.flush()
                answers[at] = json.loads(process.stdout.readline())
            except (OSError, ValueError):
                process.kill()
                process, answers[at] = None, {"error": "the program ended"}

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def reason(message):
    """A message without what differs from schema to schema."""
    message = re.sub(r"^JSON schema: (the root|/.*?): ", "", message)
    return re.sub(r"\d+", "N", re.sub(r'"[^"]*"', '"..."', message))[:100]


def summary(all_cases, answers):
    """The figures of a corpus as a dict."""
    figures = collections.Counter(schemas=len(all_cases))
    reasons, left_out, wrong = collections.Counter(), collections.Counter(), []
    for (name, _, instances), answer in zip(all_cases, answers):
        if "error" in answer:
            figures["refused"] += 1
            reasons[reason(answer["error"])] += 1
            continue
        figures["relaxed"] += bool(answer["unenforced"])
        left_out.update(answer["unenforced"])
        for at, ((_, is_valid), accepted) in enumerate(zip(instances, answer["accepts"])):
            figures["valid" if is_valid else "invalid"] += 1
            if is_valid and not accepted:
                figures["valid_refused"] += 1
            if not is_valid and accepted and answer["unenforced"]:
                figures["invalid_accepted_relaxed"] += 1
            elif not is_valid and accepted:
                figures["invalid_accepted"] += 1
                wrong.append(f"{name} #{at}")
    return {**figures, "reasons": reasons.most_common(), "left_out": dict(left_out), "wrong": wrong}


def report(corpus, options, result, top, seconds):
    n = collections.defaultdict(int, result)
    print(f"{corpus} ({' '.join(options) or 'default'}): {n['refused']} of {n['schemas']} schemas refused"
          f" ({100 * n['refused'] / max(1, n['schemas']):.2f} %), {n['relaxed']} with keywords left out {n['left_out']}")
    print(f"  invalid instances accepted: {n['invalid_accepted']} of {n['invalid']}"
          f" (and {n['invalid_accepted_relaxed']} where keywords were left out)")
    print(f"  valid instances not accepted: {n['valid_refused']} of {n['valid']}; {seconds:.0f} s")
    for text, count in result["reasons"][:top]:
        print(f"  {count:6} {text}")
    for name in result["wrong"][:top]:
        print(f"  wrong: {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", nargs="*", help="suite, maskbench; default: both")
    for name in ("additional", "relaxed", "compact", "offline"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="only each Nth schema")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--top", type=int, default=25, help="lines of a histogram")
    parser.add_argument("--ms", type=float, help="limit of the time to compile; default: the library's")
    parser.add_argument("--program", default=str(ROOT / "build/dev/tests/json_schema_corpus"))
    parser.add_argument("--cache", type=pathlib.Path, default=cache_folder())
    parser.add_argument("--json", help="writes the figures")
    args = parser.parse_args()
    options = [name for name in ("additional", "relaxed", "compact") if getattr(args, name)]
    all_results = {}
    for corpus in args.corpus or list(SOURCES):
        if corpus not in SOURCES:
            parser.error(f"there is no corpus {corpus}; there are {', '.join(SOURCES)}")
        folder = fetch(corpus, args.cache, args.offline)
        if folder is None:
            print(f"{corpus}: not in {args.cache}; run without --offline to fetch it")
            continue
        begin = time.monotonic()
        found = cases(corpus, folder, args.every)
        answers = run_program(args.program, options + ([f"ms={args.ms}"] if args.ms else []), found, args.jobs)
        all_results[corpus] = summary(found, answers)
        report(corpus, options, all_results[corpus], args.top, time.monotonic() - begin)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(all_results, indent=1))
    return any(result.get("invalid_accepted") for result in all_results.values())


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Counts the outcomes in a folder of test results; the last line reads "N passed, N failed, N skipped".

Reads *.xml (JUnit, as ctest and pytest write it) and parts.txt (lines "passed|failed|skipped NAME"). Prints the names
of failed tests and the reasons of skipped ones, each reason once, and writes the last line to summary.txt. Exit status 1
when anything failed or nothing ran.
"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

SHARED = pathlib.Path(__file__).resolve().parents[2] / "shared"  # beside the checkout; tests name what they need of it


def skip_reason(case):
    """The reason of a skip: GTEST_SKIP writes it to the output, pytest to the message."""
    output = case.findtext("system-out") or ""
    said = re.search(r"Skipped\n(.+)", output)
    skipped = case.find("skipped")
    message = skipped.get("message", "") if skipped is not None else ""
    return (said.group(1) if said else message).strip()


def junit_outcomes(path):
    for case in ElementTree.parse(path).iter("testcase"):
        # ctest and pytest use the two names differently
        name = case.get("name") if path.stem == "ctest" else f'{case.get("classname")}.{case.get("name")}'
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            yield "failed", name, ""
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            yield "skipped", name, skip_reason(case)
        else:
            yield "passed", name, ""


def missing_of_shared(reason):
    """The folder below ../shared that a reason names, such as "models/gguf-real"; None: it is another reason."""
    named = re.search(rf"(?:{re.escape(str(SHARED))}|\.\./shared)((?:/[\w.-]+){{0,2}})", reason)
    return named.group(1).strip("/") if named else None


def skips(outcomes):
    """One line for every reason, and one for all tests that need ../shared."""
    by_reason, missing = collections.defaultdict(list), set()
    for kind, name, reason in outcomes:
        if kind != "skipped":
            continue
        part = missing_of_shared(reason)
        if part is not None:
            missing.add(part)
        by_reason[reason if part is None else SHARED].append(name)
    for reason, names in by_reason.items():
        if reason == SHARED:
            absent = ", ".join(sorted(missing - {""}))
            reason = "needs ../shared" + (f", which lacks {absent}" if absent and SHARED.is_dir() else ", which is not there")
        others = f" and {len(names) - 1} more" if len(names) > 1 and reason else ""
        for name in names[:1] if reason else names:
            yield f"skipped: {name}{others}" + (f": {reason}" if reason else "")


def main():
    folder = pathlib.Path(sys.argv[1])
    outcomes = []
    for path in sorted(folder.glob("*.xml")):
        outcomes += junit_outcomes(path)
    parts = folder / "parts.txt"
    if parts.exists():
        for line in parts.read_text().splitlines():
            outcome, name = line.split(" ", 1)
            outcomes.append((outcome, name, ""))

    for line in skips(outcomes):
        print(line)
    for kind, name, _ in outcomes:
        if kind == "failed":
            print(f"failed: {name}")
    count = {kind: sum(o[0] == kind for o in outcomes) for kind in ("passed", "failed", "skipped")}
    summary = f'{count["passed"]} passed, {count["failed"]} failed, {count["skipped"]} skipped'
    (folder / "summary.txt").write_text(summary + "\n")
    print(summary)
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Counts the outcomes in a folder of test results; the last line reads "N passed, N failed, N skipped".

Reads *.xml (JUnit, as ctest and pytest write it) and parts.txt (lines "passed|failed|skipped NAME"). Prints the names
of failed tests and the reasons of skipped ones, and writes the last line to summary.txt. Exit status 1 when anything
failed or nothing ran.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


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

    for outcome in ("skipped", "failed"):
        for kind, name, reason in outcomes:
            if kind == outcome:
                print(f"{outcome}: {name}" + (f": {reason}" if reason else ""))
    count = {kind: sum(o[0] == kind for o in outcomes) for kind in ("passed", "failed", "skipped")}
    summary = f'{count["passed"]} passed, {count["failed"]} failed, {count["skipped"]} skipped'
    (folder / "summary.txt").write_text(summary + "\n")
    print(summary)
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())

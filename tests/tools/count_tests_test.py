"""The summary line of `make test`."""
import pathlib
import subprocess
import sys

COUNT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "count_tests.py"
CTEST = """<testsuite name="t" tests="3">
<testcase name="base.Slab.A" classname="base.Slab.A" status="run"><system-out>ok</system-out></testcase>
<testcase name="base.Slab.B" classname="base.Slab.B" status="fail"><failure message="Failed"/><system-out/></testcase>
<testcase name="base.Slab.C" classname="base.Slab.C" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>x_test.cc:3: Skipped
no ../shared here
</system-out></testcase></testsuite>"""
PYTEST = """<testsuites><testsuite name="pytest">
<testcase classname="tests.a_test" name="test_one"/>
<testcase classname="tests.a_test" name="test_two"><error message="boom"/></testcase>
<testcase classname="tests.a_test" name="test_three"><skipped type="pytest.skip" message="no model"/></testcase>
</testsuite></testsuites>"""


def count(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return subprocess.run([sys.executable, COUNT, folder], text=True, capture_output=True)


def test_counts_and_names(tmp_path):
    run = count(tmp_path, ctest_xml=CTEST, pytest_xml=PYTEST, parts_txt="passed build\nfailed check layers\n")
    assert run.returncode == 1
    assert run.stdout.splitlines() == [
        "skipped: base.Slab.C: no ../shared here", "skipped: tests.a_test.test_three: no model",
        "failed: base.Slab.B", "failed: tests.a_test.test_two", "failed: check layers", "3 passed, 3 failed, 2 skipped"]
    assert (tmp_path / "summary.txt").read_text() == "3 passed, 3 failed, 2 skipped\n"


def test_all_passed(tmp_path):
    run = count(tmp_path, parts_txt="passed build\n")
    assert (run.returncode, run.stdout) == (0, "1 passed, 0 failed, 0 skipped\n")


def test_nothing_ran_is_a_failure(tmp_path):
    assert count(tmp_path).returncode == 1

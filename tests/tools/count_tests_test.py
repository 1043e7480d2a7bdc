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
no model of its own
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
        "skipped: base.Slab.C: no model of its own", "skipped: tests.a_test.test_three: no model",
        "failed: base.Slab.B", "failed: tests.a_test.test_two", "failed: check layers", "3 passed, 3 failed, 2 skipped"]
    assert (tmp_path / "summary.txt").read_text() == "3 passed, 3 failed, 2 skipped\n"


def test_all_passed(tmp_path):
    run = count(tmp_path, parts_txt="passed build\n")
    assert (run.returncode, run.stdout) == (0, "1 passed, 0 failed, 0 skipped\n")


def test_nothing_ran_is_a_failure(tmp_path):
    assert count(tmp_path).returncode == 1


def skipped(name, reason):
    return f'<testcase name="{name}" status="notrun"><skipped/><system-out>x: Skipped\n{reason}\n</system-out></testcase>'


def test_tests_that_need_shared_files_say_so_once(tmp_path):
    shared = COUNT.parents[2] / "shared"
    cases = [skipped("text.Bpe.A", f"{shared}/models/tokenizer-gpt2 is not here"),
             skipped("isa.A", "this CPU lacks amx"), skipped("isa.B", "this CPU lacks amx"),
             skipped("formats.Real.B", f"{shared}/models/gguf-real/x.gguf is not on this machine"),
             skipped("e2e.C", f"c.test: steps from number 1 on skipped: {shared}/models/stories260K is absent")]
    pytest_xml = PYTEST.replace("no model", "no ../shared/models/chat-templates").replace("<error", "<properties").replace(
        'message="boom"/></t', '/></t')
    run = count(tmp_path, ctest_xml=f"<testsuite>{''.join(cases)}</testsuite>", pytest_xml=pytest_xml)
    lines = run.stdout.splitlines()
    about_shared = [line for line in lines if "../shared" in line]
    assert len(about_shared) == 1 and about_shared[0].startswith("skipped: text.Bpe.A and 3 more: needs ../shared, which ")
    if shared.is_dir():
        assert about_shared[0].endswith("lacks models/chat-templates, models/gguf-real, models/stories260K, models/tokenizer-gpt2")
    assert "skipped: isa.A and 1 more: this CPU lacks amx" in lines
    assert lines[-1] == "2 passed, 0 failed, 6 skipped"

"""tools/check_prose.py: what is searched where."""
import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("check_prose", ROOT / "tools/check_prose.py")
check_prose = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_prose)


def found(name, text):
    return [(line, term) for line, term, _use in check_prose.occurrences(name, text)]


def test_phrases_are_searched_in_comments_and_strings_identifiers_everywhere():
    assert found("src/tensor/x.h", "// a strip of rows\nint kStripRows = 0;\n") == [(1, "strip"), (2, "kStripRows")]
    assert found("src/graph/x.cc", 'auto y = joint_keys(x);\nfail("a picture");\n') == [(2, "picture"), (1, "joint_keys")]
    assert found("src/graph/x.cc", "  // by the clock\n  // of sigma\n") == [(1, "clock\n     of sigma")]
    assert found("docs/x.md", "An image.\n\n    a picture of code\n") == []


def test_names_of_files_members_and_stored_keys_stay():
    assert found("src/tensor/x.h", "// result->pictures[0]\n") == []
    assert found("src/lab/x.cc", 'row["laps"] = 3;\n') == [] and found("src/lab/x.cc", "// three laps\n") != []


def test_terms_and_replacements_differ():
    for pattern, replacement, _files in check_prose.PHRASES + check_prose.IDENTIFIERS:
        assert not check_prose.re.fullmatch(pattern, replacement), pattern


def refused(text, name="src/graph/x.h"):
    return [(line, words) for line, words, _use in check_prose.incomplete(name, text)]


def test_comments_that_leave_out_their_noun_are_refused():
    for words in ("Of", "Those", "What", "Whether", "Beside", "As the", "The same"):
        assert refused(f"// Head.\n/// {words} rows of a step.\nint x;\n") == [(2, words)]
        assert refused(f"// Head.\nint x;  ///< {words} rows of a step\n") == [(2, words)]
    assert refused("// Head.\n// Offers, Thosep, Whatever, As they are, The sameness.\n") == []
    assert refused("// Of steps.\n#pragma once\n") == [(1, "Of")]


def test_the_begin_of_a_comment_or_paragraph_counts_not_the_begin_of_a_line():
    assert refused("// Head.\n/// Returns the rows.\n/// What is left is dropped.\n") == []
    assert refused("// Head.\n/// Returns the rows.\n///\n/// What is left is dropped.\n") == [(4, "What")]
    assert refused("// Head.\n// A list.\n/// Of steps.\n") == [(3, "Of")]
    assert refused("// Head.\n/// Rows.\nint x;\n/// Of steps.\nint y;\n") == [(4, "Of")]
    assert refused("// Head.\nint x;  ///< rows\n        ///< Of the step\n        // Those are few.\n") == []
    assert refused("// Head.\nint x;  // rows\nint y;  // Of the step\n// Those\n") == [(3, "Of"), (4, "Those")]


def test_literals_are_no_comments_and_other_folders_are_not_searched():
    assert refused('// Head.\nauto url = "http:// Of";\nchar c = \'"\';  // Of\nint n = 1\'000;  // Those\n') == [
        (3, "Of"), (4, "Those")]
    assert refused('// Head.\nauto t = R"(\n// Of\n)";\n') == []
    assert refused("// Of steps.\n", "tests/graph/x.cc") == refused("// Of steps.\n", "src/graph/x.md") == []


def test_headers_have_a_head_comment():
    assert refused("#pragma once\n") == [(1, "no head comment")]
    assert refused("#pragma once\n", "src/kernels/x.cuh") == refused("int x;\n", "include/redline/x.inc") == [(1, "no head comment")]
    assert refused("int x;\n", "src/graph/x.cc") == refused("/* A C header. */\n", "include/redline/x.h") == []


def test_the_command_reports_incomplete_comments(tmp_path, monkeypatch, capsys):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/x.h").write_text("#pragma once\n/// Whether it does.\n", encoding="utf-8")
    monkeypatch.setattr(check_prose, "ROOT", tmp_path)
    monkeypatch.setattr(check_prose, "files", lambda _paths: ["src/x.h"])
    monkeypatch.setattr("sys.argv", ["check_prose.py"])
    assert check_prose.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        f"src/x.h:1: 'no head comment'; use: {check_prose.HEAD_COMMENT}",
        f"src/x.h:2: 'Whether'; use: {check_prose.COMPLETE_SENTENCE}"]

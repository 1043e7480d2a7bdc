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

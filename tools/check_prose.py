#!/usr/bin/env python3
"""Finds private vocabulary in sources and documents, with the term of the field to use instead.

  check_prose.py [PATH ...]     every occurrence in these files or folders; exit status 1 if there is any
  check_prose.py --counts       occurrences per folder and per term only
  check_prose.py --list         the vocabulary

Default paths: sources, tests, tools, the web pages, the Python packages and the documents. Never searched: docs/history. Phrases
are searched in comments, string literals and Markdown; identifiers in C++ sources as a whole. A word with ordinary uses ("line", "strip",
"page") is only searched where it has the private one.

In C++ below src, include and fuzz it also finds comments that begin with a word whose noun is elsewhere ("Of", "Those", "What"),
and headers without a comment at their head.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULT = ["src", "include", "tests", "fuzz", "tools", "cmake", "python", "comfyui_redline", "web", "assets", "docs", "README.md",
           "CONTRIBUTING.md", "CMakeLists.txt"]
EXCLUDED = ("docs/history/", "tools/check_prose.py", "tests/tools/check_prose_test.py",
            "assets/redline-tales/training/", "assets/redline-shapes/training/")  # hashes of the scripts are recorded
SOURCES = (".h", ".cc", ".inc", ".cu", ".cuh")
SCRIPTS = (".py", ".sh", ".cmake", "CMakeLists.txt", ".test")  # comments from "#" to the end of the line, and literals
WEB = (".ts", ".tsx")
ATTENTION = r"attention|softmax_of_scores"

# (term as a regular expression, replacement, files that it is searched in; "" is all)
PHRASES = [
    (r"(?<!cache )(?<!command )(?<!text )\blines?\b(?! (?:\d|of text))",
     "query row, row", rf"kernels/cpu/.*(?:{ATTENTION})|ops/.*attention"),
    (r"\bstrips?\b(?!\.h|,)", "row panel", r"^src/(kernels|tensor|graph|backends)/"),
    (r"\bop pages?\b|\bpages? in `?src/|\b[Ee]ach .{1,30} is a page\b|\bthis page says\b", "file", ""),
    (r"(?<![-\w>./])(?!(?<=\")pictures?\")[Pp]ictures?\b(?!_|\.png)", "image; feature map for an op's value", ""),
    (r"\blaps?\b(?![\"`])", "iteration", ""),  # "laps" is a key of stored records
    (r"\b(?:meets?|met) (?:activations?|weights?|keys?|queries|thousands)\b|\bweights? (?:meets?|met)\b",
     "use, are multiplied with", ""),
    (r"\b(?:is|are|be|being|was|were) told\b|\btold (?:the|a|of|where|at)\b", "gets, is passed, printed", ""),
    (r"\bnetworks? (?:said|says)\b|\bwhat .{1,40} (?:said|says) of (?:it|them)\b",
     "model output, reference output", ""),
    (r"\bwho(?:ever)? would (?:wait|be)\b", "idle workers, waiting threads", ""),
    (r"\b(?:is|are|was|were) not to be had\b", "cannot be allocated: out of memory", ""),
    (r"\bnot to be believed\b", "not credible, invalid", ""),
    (r"\b(?:is|are) asked for\b|\basked? (?:for )?(?:ahead|a product)\b|\basks? ahead\b",
     "prefetched", r"^src/kernels/|^docs/"),
    (r"\bfelt (?:everywhere|by)\b", "error-sensitive", ""),
    (r"\bclock of sigma\b|\bforecast clock\b", "u(sigma)", ""),
    (r"\btaken back\b", "compensated", r"step_cache"),
    (r"\bdrawn anew\b|\b(?:made|done|drawn|begun|read) anew\b", "again, recomputed, regenerated", ""),
    (r"\b[Tt]urn and turn about\b|\bby turns\b", "alternating", ""),
    (r"\bin work\b", "in progress, current", ""),
    (r"\bstrangers?\b", "unknown, unrelated", ""),
    (r"\bhabits\b", "conventions, defaults", ""),
    (r"\bthe makers'|\bmakers' names\b", "the original checkpoint's", ""),
    (r"\bby themselves\b(?= (?:already|too))|\bso far that\b", "(rephrase)", ""),
    (r"\bwalls?\b(?! (?:clock|time))", "module boundaries", ""),
    (r"\bwithout further ado\b|\bat leisure\b|\bhandiest\b|\bwith open hands\b", "(omit)", ""),
    (r"\bmost\b(?= (?:rows|tokens|pixels|bytes|positions|values|of them) (?:of|that|in|at)\b)",
     "maximum number of", r"^src/|^include/"),
    (r"\bbrought in\b", "loaded", r"^src/(kernels|graph|backends)/"),
    (r"\bends? of (?:a|the) products?\b", "epilogue", ""),
    (r"\bneighbou?rs?\b(?= (?:then|wait|has|have|that|of a worker))",
     "other worker, victim of stealing", r"executor|program|base/"),
    (r"\bfloors?\b(?! ?\()", "layer", r"\.md$|CMake"),
    (r"\bhelp(?:s|ed)? their neighbours\b", "work stealing", ""),
    (r"\bnobody\b", "(rephrase: unused, not in use, cancelled)", r"^src/|^include/"),
    (r"\bbegins? anew\b|\bstarts? anew\b|\banew\b", "is reset, restarts, again", ""),
    (r"\b(?:that|which|it|one) (?:is|are) none\b(?! of)|\bis none of (?=[a-z0-9])", "malformed, unknown; expected one of ...", ""),
    (r"\bthere twice\b", "duplicate", ""),
    (r"\bgo(?:es)? on (?:from|where|with)\b|\bgoing on from\b", "continues, resumes from", ""),
    (r"\b(?:of|guards) what follows\b", "guards the members below", ""),
    (r"\bso many times as\b|\babout so many\b", "a ratio of, approximately N", ""),
    (r"\bspeaks? for all\b|\bin vain\b", "suffices, never notified", ""),
    (r"\b(?:has|have) (?:it|them) no more\b|\bany more than\b", "after eviction", ""),
    (r"\bby what\b|\bto what is\b|\bof what is\b|\bof what it\b|\bfor what few\b", "(name the noun)", ""),
    (r"\brepay\w*|\bowed\b", "correct_errors, pending error", r"diffusion|step_cache|images"),
    (r"\bgive[ns]? up\b", "evicted, aborted, timed out", r"^src/|^include/"),
    (r"\bbehind\b(?= (?:the (?:end|tag|call|prompt|pages? before)|what|a zero byte))", "after", ""),
]
IDENTIFIERS = [
    (r"\bXForms?\b|\bkXForm\w*", "ActivationLayout", ""),
    (r"\bOnceValues\b|\bonce_values\b|\bsplit_once\b", "step invariants, hoist_invariants", ""),
    (r"\w*\btold_mask\w*|\bis_told\w*", "is_inpainting, mask_latents", ""),
    (r"\bRgbPicture\b|\bPicture[A-Z]\w*|\bpicture_\w+", "Image, image_..., FeatureMap", ""),
    (r"\bjoint_keys\b", "pack_kv", ""),
    (r"\bbias_attention\b", "relative_bias_attention", ""),
    (r"\bkMost\w*", "kMax...", ""),
    (r"\bkFromRows\w*|\bkTilesFromRowsOf\w*", "kMin...Rows", ""),
    (r'"velocity"', "model_output", r"^src/|^include/"),
    (r"\bmax_chunk\b", "max_batch_tokens", ""),
    (r"\b(?!png_set_)\w*(?<![lr])[sS]trips?(?!ped|ping)\w*", "row_panel, RowPanel", r"^src/(kernels|tensor|graph|backends)/"),
    (r"\bkLeast\w*|\bleast_(?!of_)[a-z]+\w*", "kMin..., min_...", ""),
    (r"\bkBoundPrefix\b|\bbound_values\b", "external values", ""),
    (r"\b(?:most_(?!likely)\w+)", "max_...", r"^src/|^include/"),
    (r"\b(?:Lap|laps_?)\b(?!\")", "Iteration, iterations", ""),
]

# First words of a comment that leaves out its noun or its verb. They count at the beginning of a comment and of its paragraphs.
OPENING = re.compile(r"(?:Of|Those|What|Whether|Beside|As the|The same)\b")
COMPLETE_SENTENCE = "begin with a verb or with the noun that is described"
HEAD_COMMENT = "a first line that says what the header holds"
CPP_ROOTS = ("src/", "include/", "fuzz/")
HEADERS = (".h", ".cuh", ".inc")
# Literals and comments; an apostrophe after a digit separates digits.
CPP_TOKEN = re.compile(r"""R"([^()\\ ]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"""
                       r"""|//[^\n]*|/\*.*?\*/""", re.S)

COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
SCRIPT_PROSE = re.compile(r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|(?<![\w$&{\'])#[^\n]*', re.S)
WEB_PROSE = re.compile(r"""(?<![:\w"'`])//[^\n]*|/\*.*?\*/""", re.S)


def prose_of(name, text):
    """`text` with everything except comments and literals blanked; Markdown without code blocks."""
    for suffixes, prose in ((SOURCES, COMMENT_OR_STRING), (SCRIPTS, SCRIPT_PROSE), (WEB, WEB_PROSE)):
        if not name.endswith(suffixes):
            continue
        kept = [" " if c != "\n" else c for c in text]
        for found in prose.finditer(text):
            if found.group().startswith('"') and text[:found.start()].rsplit("\n", 1)[-1].lstrip().startswith("#include"):
                continue
            kept[found.start():found.end()] = found.group()
        # A sentence may continue in the next line of a comment: its marker is not part of it.
        return re.sub(r"(?<=\n)([ ]*)(///<|///|//|\*|#)", lambda m: " " * len(m.group()), "".join(kept))
    return re.sub(r"^```.*?^```|^    [^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S | re.M)


def across_lines(pattern):
    """A blank between words may be the end of a line; look-behinds have a fixed width and keep theirs."""
    return re.sub(r"(\(\?<[!=][^)]*\))| ", lambda m: m.group(1) or r"\s+", pattern)


def occurrences(name, text):
    """(line, term found, replacement) of one file."""
    prose, seen = prose_of(name, text), set()
    for terms, where in ((PHRASES, prose), (IDENTIFIERS, text if name.endswith(SOURCES) else "")):
        for pattern, replacement, files in terms:
            if files and not re.search(files, name):
                continue
            for found in re.finditer(across_lines(pattern), where):
                if found.span() in seen:
                    continue
                seen.add(found.span())
                yield where.count("\n", 0, found.start()) + 1, found.group(), replacement


def openings(text):
    """(line, first words) of each comment paragraph of C++ that begins with one of OPENING."""
    previous = None  # line, column, marker and text of the comment before
    line, counted = 1, 0
    for token in CPP_TOKEN.finditer(text):
        if not token.group().startswith("//"):
            continue
        marker, words = re.match(r"(///<|///|//) ?(.*)", token.group()).groups()
        line_begin = text.rfind("\n", 0, token.start()) + 1
        line, counted = line + text.count("\n", counted, token.start()), token.start()
        column = token.start() - line_begin
        # A line continues the comment above it if nothing else stands in it, in the same column and with the same marker;
        # the continuation of "///<" has the marker "//" or "///<".
        continues = (previous is not None and not text[line_begin:token.start()].strip() and previous[0] == line - 1 and
                     previous[1] == column and previous[2] in (marker, "///<") and previous[3])
        found = OPENING.match(words)
        if found and not continues:
            yield line, found.group()
        previous = line, column, marker if not continues else previous[2], words


def incomplete(name, text):
    """(line, first words or "no head comment", what to write) of the comments of one C++ file that are refused."""
    if not name.startswith(CPP_ROOTS) or not name.endswith(SOURCES):
        return
    if name.endswith(HEADERS) and not text.startswith(("//", "/*")):
        yield 1, "no head comment", HEAD_COMMENT
    for line, words in openings(text):
        yield line, words, COMPLETE_SENTENCE


def files(paths):
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *paths], cwd=ROOT,
                             capture_output=True, check=True).stdout.decode().split("\0")
    return sorted(n for n in listing
                  if n.endswith((*SOURCES, *SCRIPTS, *WEB, ".md")) and not n.startswith(EXCLUDED) and (ROOT / n).is_file())


def main():
    parser = argparse.ArgumentParser(prog="check_prose.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=DEFAULT)
    parser.add_argument("--counts", action="store_true", help="occurrences per folder and per term")
    parser.add_argument("--list", action="store_true", help="print the vocabulary")
    args = parser.parse_args()
    if args.list:
        for pattern, replacement, where in PHRASES + IDENTIFIERS:
            print(f"{pattern}\n    use: {replacement}" + (f"   (in {where})" if where else ""))
        return 0
    by_folder, by_term, total = collections.Counter(), collections.Counter(), 0
    for name in files(args.paths or DEFAULT):
        text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
        for line, term, replacement in sorted([*occurrences(name, text), *incomplete(name, text)]):
            parts = name.split("/")
            by_folder["/".join(parts[:2]) if parts[0] == "src" else parts[0]] += 1
            by_term[replacement] += 1
            total += 1
            if not args.counts:
                print(f"{name}:{line}: {term!r}; use: {replacement}")
    if args.counts:
        for title, counter in (("folder", by_folder), ("use", by_term)):
            print(f"{title}:")
            for key, count in counter.most_common():
                print(f"  {count:5}  {key}")
    if total:
        print(f"{total} occurrences of private vocabulary or incomplete sentences", file=sys.stderr)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())

"""libredline.so through ctypes: what any language with a foreign function interface can do."""
import ctypes
import json
import os
import pathlib

import pytest

from redline_binary import binary

ROOT = pathlib.Path(__file__).resolve().parents[2]
TALES = ROOT / "assets/redline-tales"


class Prompt(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char_p), ("length", ctypes.c_size_t), ("tokens", ctypes.POINTER(ctypes.c_int32)),
                ("num_tokens", ctypes.c_size_t)]


class Piece(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("index", ctypes.c_size_t), ("text", ctypes.c_char_p),
                ("length", ctypes.c_size_t), ("token", ctypes.c_int32), ("logprob", ctypes.c_float), ("top", ctypes.c_void_p),
                ("num_top", ctypes.c_size_t), ("is_last", ctypes.c_int32)]


ON_PIECE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Piece), ctypes.c_void_p)


class Failure(Exception):
    pass


@pytest.fixture(scope="module", name="library")
def fixture_library():
    path = pathlib.Path(binary()).parent / "libredline.so"
    if not path.exists():
        pytest.skip(f"no {path}: build redline_shared")
    library = ctypes.CDLL(str(path))
    library.redline_version.restype = ctypes.c_char_p
    library.redline_error_message.restype = ctypes.c_char_p
    library.redline_code_name.restype = ctypes.c_char_p
    for name in ("redline_error_message", "redline_error_free", "redline_free", "redline_model_release",
                 "redline_generation_release", "redline_generation_cancel"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    return library


def call(library, name, *arguments):
    """Calls a function whose last parameter takes the error object."""
    error = ctypes.c_void_p()
    code = getattr(library, name)(*arguments, ctypes.byref(error))
    if code == 0:
        return
    message = f"{library.redline_code_name(code).decode()}: {library.redline_error_message(error).decode()}"
    library.redline_error_free(error)
    raise Failure(message)


@pytest.fixture(scope="module", name="model")
def fixture_model(library):
    if not (TALES / "model.safetensors").exists():
        pytest.skip("the bundled model is not there")
    model = ctypes.c_void_p()
    call(library, "redline_model_open", os.fsencode(TALES), None, ctypes.byref(model))
    yield model
    library.redline_model_release(model)


def submit(library, model, text, on_piece=None):
    generation = ctypes.c_void_p()
    call(library, "redline_submit", model, ctypes.byref(Prompt(text, ctypes.c_size_t(-1).value, None, 0)), ctypes.c_size_t(1),
         None, ctypes.c_size_t(0), on_piece, None, ctypes.byref(generation))
    return generation


def test_version_and_devices(library):
    assert library.redline_version().decode().count(".") == 2
    text = ctypes.c_void_p()
    call(library, "redline_devices", ctypes.byref(text))
    devices = json.loads(ctypes.string_at(text))["devices"]
    library.redline_free(text)
    assert devices[0]["name"] == "cpu" and devices[0]["cores"] >= 1 and devices[0]["isa"] in devices[0]["isas"]


def test_errors_carry_code_and_message(library):
    with pytest.raises(Failure, match="^not_found: .*no/such/model"):
        call(library, "redline_model_open", b"no/such/model", None, ctypes.byref(ctypes.c_void_p()))
    with pytest.raises(Failure, match="^invalid_argument: model is NULL"):
        submit(library, None, b"Once")


def test_pieces_are_read_with_next(library, model):
    generation = submit(library, model, b"Once upon a time")
    piece, what, text = Piece(struct_size=ctypes.sizeof(Piece)), ctypes.c_int32(), ""
    for _ in range(12):
        call(library, "redline_generation_next", generation, ctypes.c_double(-1), ctypes.byref(what), ctypes.byref(piece))
        assert what.value == 1 and piece.index == 0
        text += piece.text.decode()
    assert len(text) > 12
    library.redline_generation_release(generation)  # cancels the rest


def test_a_python_function_is_the_callback(library, model):
    pieces = []

    @ON_PIECE
    def on_piece(piece, _):
        pieces.append("" if piece.contents.is_last else piece.contents.text.decode())
        return 1 if len(pieces) == 6 else 0

    generation = submit(library, model, b"Once upon a time", on_piece)
    done = ctypes.c_int32()
    call(library, "redline_generation_wait", generation, ctypes.c_double(-1), ctypes.byref(done))
    assert done.value == 1 and len(pieces) == 7 and pieces[-1] == ""
    library.redline_generation_release(generation)

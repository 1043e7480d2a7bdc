"""redline.EmbeddingModel over a golden encoder with random weights."""
import pathlib

import numpy as np
import pytest
import redline
from redline import _redline

TEXTS = ["the quick brown fox", "Once upon a time", "", "été naïve 12345", "a little girl named Lily"]


@pytest.fixture(name="folder", scope="module")
def folder_fixture(root, tmp_path_factory):
    golden = pathlib.Path(_redline.library_path()).resolve().parent / "golden/encoders/bert"
    if not (golden / "model.safetensors").exists():
        pytest.skip("the golden encoders are not made: build the target golden")
    folder = tmp_path_factory.mktemp("encoder")
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to(golden / name)
    (folder / "tokenizer.json").symlink_to(root / "tests/golden/tokenizers/bert.json")
    return folder


@pytest.fixture(name="encoder", scope="module")
def encoder_fixture(folder):
    return redline.EmbeddingModel(folder, dtype="f32", threads=2, pooling="mean")


def test_embeddings(encoder):
    values = encoder.embed(TEXTS, normalize=True)
    assert values.shape == (5, encoder.dimensions) and values.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(values, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(encoder.embed(TEXTS[1], normalize=True), values[1])
    assert encoder.embed([]).shape == (0, encoder.dimensions)
    cut = encoder.embed(TEXTS, dimensions=4, normalize=True)
    np.testing.assert_allclose(cut, values[:, :4] / np.linalg.norm(values[:, :4], axis=1, keepdims=True), atol=1e-5)
    assert encoder.describe()["pooling"] == "mean" and str(encoder.path) in repr(encoder)


def test_hidden_states(encoder):
    """Their mean is the embedding."""
    states = encoder.token_states(TEXTS)
    values = encoder.embed(TEXTS, normalize=False)
    for state, value in zip(states, values, strict=True):
        assert state.dtype == np.float32 and state.shape[1] == encoder.dimensions and len(state) >= 2  # [CLS] and [SEP]
        np.testing.assert_allclose(state.mean(axis=0), value, atol=1e-5)
    one = encoder.token_states(TEXTS[0])
    np.testing.assert_array_equal(one, states[0])
    kept = one.copy()
    del states
    encoder.embed(TEXTS)
    np.testing.assert_array_equal(one, kept)  # the array keeps its memory
    np.testing.assert_array_equal(np.from_dlpack(one), kept)
    assert encoder.token_states([]) == []


def test_encode_has_the_shape_of_sentence_transformers(encoder):
    values = encoder.encode(TEXTS, batch_size=2, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(values, encoder.embed(TEXTS, normalize=True), atol=1e-6)
    assert encoder.encode(TEXTS[0]).shape == (encoder.dimensions,)
    assert isinstance(encoder.encode(TEXTS, convert_to_numpy=False), list)
    np.testing.assert_allclose(encoder.encode("fox", prompt="query: "), encoder.encode("query: fox"), atol=1e-6)
    assert encoder.encode(TEXTS, truncate_dim=3).shape == (5, 3)
    states = encoder.encode(TEXTS, output_value="token_embeddings")
    assert [len(s) for s in states] == [len(s) for s in encoder.token_states(TEXTS)]
    with pytest.raises(NotImplementedError, match="token_embeddings"):
        encoder.encode(TEXTS, output_value="x")
    with pytest.raises(TypeError, match="batchsize"):
        encoder.encode(TEXTS, batchsize=3)


def test_against_sentence_transformers(folder, encoder):
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    try:  # version 6 has moved them
        from sentence_transformers.sentence_transformer import modules as models
    except ImportError:
        from sentence_transformers import models
    try:
        words = models.Transformer(str(folder))
    except (OSError, ValueError) as error:
        pytest.skip(f"transformers cannot read the folder: {error}")
    reference = sentence_transformers.SentenceTransformer(modules=[words, models.Pooling(encoder.dimensions, "mean")], device="cpu")
    texts = [text for text in TEXTS if text]
    np.testing.assert_allclose(encoder.encode(texts), reference.encode(texts), atol=1e-4)


def test_ranking_and_errors(encoder, model):
    ranked = encoder.rank("the quick brown fox", ["a dog", "the quick brown fox", "rain"], top_k=2)
    assert len(ranked) == 2 and ranked[0].index == 1 and ranked[0].score == pytest.approx(1, abs=1e-4)
    assert ranked[0].text == "the quick brown fox" and ranked[0].score >= ranked[1].score
    for call, error, message in (
            (lambda: encoder.embed(5), redline.InvalidArgument, "str"),
            (lambda: encoder.embed(["x", 5]), redline.InvalidArgument, r"\[1\]"),
            (lambda: encoder.embed(["x"], prompt_name="nobody"), redline.InvalidArgument, "nobody"),
            (lambda: encoder.embed(["x"], dimensions=10**6), redline.InvalidArgument, "dimensions"),
            (lambda: encoder.embed(["x"], dimensions=0), redline.InvalidArgument, "dimensions is 0; it must be from 1 to"),
            (lambda: encoder.token_states([[10**6]]), redline.InvalidArgument, "vocabulary|id"),
            (lambda: encoder.embed(["word " * 5000]), redline.InvalidArgument, "tokens"),
            (lambda: model.embed("x"), redline.Unsupported, "generates text")):
        with pytest.raises(error, match=message):
            call()
    assert encoder.embed(["word " * 5000], truncate=True).shape[0] == 1
    decoder = redline.EmbeddingModel(model.path, dtype="f32", threads=1, pooling="last")
    assert decoder.embed("x").shape == (decoder.dimensions,)
    states = decoder.token_states("x y z")
    assert states.ndim == 2 and states.shape[1] == decoder.dimensions
    np.testing.assert_allclose(decoder.embed("x y z", normalize=False), states[-1], rtol=1e-6)
    decoder.close()
    with pytest.raises(redline.ClosedError, match="closed"):
        decoder.embed("x")


def test_a_model_that_makes_embeddings(folder):
    with redline.Model(folder, dtype="f32", threads=1) as opened:
        assert opened.embed("x").ndim == 1 and "architecture" in opened.describe()
        with pytest.raises(redline.Unsupported, match=r"makes embeddings, not text; use embed\(\)"):
            opened.generate("x")

"""tests/golden/weights.py: recipes of random weights. That they give the bytes which the expected outputs belong to is checked by
every build."""
import importlib.util
import pathlib

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("gguf")

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
spec = importlib.util.spec_from_file_location("weights", GOLDEN / "weights.py")
weights = importlib.util.module_from_spec(spec)
spec.loader.exec_module(weights)


def test_every_recipe_is_read_and_written_alike():
    recipes = sorted(GOLDEN.rglob(weights.RECIPE))
    assert len(recipes) > 60
    for path in recipes:
        assert weights.Recipe().parse(path.read_text()).text() == path.read_text(), path


def test_the_generator_is_that_of_pytorch():
    # torch.manual_seed(0); torch.randn(3, dtype=torch.float64), and the first and last of torch.randn(20, ...)
    assert weights.TorchGenerator(0).randn(3) == pytest.approx([1.54099611, -0.29342890, -2.17878938], abs=1e-7)
    twenty = weights.TorchGenerator(0).randn(20)
    assert (twenty[0], twenty[19]) == pytest.approx((-2.310411800, -0.749891523), abs=1e-7)


def test_other_bytes_are_refused(tmp_path):
    source = tmp_path / "case"
    source.mkdir()
    (source / weights.RECIPE).write_text(f"file m.safetensors {'0' * 64}\ndtype bf16\ndraw torch 1\ntensors\na\n weight 2 3\n")
    with pytest.raises(SystemExit, match="other bytes"):
        weights.write_files(source, tmp_path)
    recipe = weights.open_recipe(source)
    made = recipe.make_tensors(source)
    assert list(made) == ["a.weight"] and made["a.weight"].shape == (2, 3)
    digest = weights.digest_of(next(recipe.file_bytes(made)))
    (source / weights.RECIPE).write_text((source / weights.RECIPE).read_text().replace("0" * 64, digest))
    weights.write_files(source, tmp_path)
    assert weights.digest_of((tmp_path / "m.safetensors").read_bytes()) == digest

"""redline.ray.Generator as Ray Data calls it: one object per actor, columns in, columns out."""
import numpy as np
import pytest
import redline.ray


def test_columns(root, model):
    generate = redline.ray.Generator(str(root / "assets/redline-tales"), dtype="f32", threads=2, temperature=0, max_tokens=8)
    batch = {"id": np.arange(3), "prompt": np.array(["Once upon a time", "The dog", "One day"]), "max_tokens": np.array([2, 5, 8])}
    rows = generate(batch)
    assert list(rows["id"]) == [0, 1, 2] and rows["error"] == ["", "", ""]
    assert [int(n) for n in rows["completion_tokens"]] == [2, 5, 8]
    assert rows["text"] == [model.generate(str(p), temperature=0, max_tokens=int(n)).text
                            for p, n in zip(batch["prompt"], batch["max_tokens"])]
    with pytest.raises(ValueError, match='no column "prompt"; they have question'):
        generate({"question": ["x"]})


def test_a_row_that_cannot_run_does_not_stop_the_others(root):
    generate = redline.ray.Generator(str(root / "assets/redline-tales"), prompt_column="q", output_column="a", max_tokens=2)
    rows = generate({"q": ["Once", "word " * 5000, "One"]})
    assert rows["a"][1] == "" and "context" in rows["error"][1] and rows["finish_reason"][1] == "error"
    assert rows["a"][0] and rows["a"][2]
    with pytest.raises(ValueError, match="repeat the row"):
        redline.ray.Generator(str(root / "assets/redline-tales"), n=2)

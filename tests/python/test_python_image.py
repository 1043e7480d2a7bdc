"""redline.ImagePipeline."""
import io
import json
import pickle
import threading

import numpy as np
import pytest
import redline

PIL = pytest.importorskip("PIL.Image")
PROMPT = "a large red circle on a blue background"


def quick(painter, prompt=PROMPT, **options):
    return painter(prompt, **{"num_inference_steps": 3, "seed": 5, **options})


def test_pictures(painter):
    result = quick(painter)
    image = result.images[0]
    assert isinstance(image, PIL.Image) and image.size == (128, 128)
    pixels = result.to_numpy()
    assert pixels.shape == (1, 128, 128, 3) and pixels.dtype == np.uint8
    np.testing.assert_array_equal(np.asarray(image), pixels[0])
    assert result.seed == 5 and len(result.step_ms) == 3 and result.executed_share == 1
    np.testing.assert_array_equal(np.asarray(PIL.open(io.BytesIO(result._repr_png_()))), pixels[0])
    assert len(result) == 1 and result[0].size == (128, 128) and "128x128" in repr(result)


def test_arrays_outlive_the_result(painter):
    result = quick(painter, keep_latents=True)
    pixels, latents, image = result.to_redline()[0].to_numpy(), result.latents, result.images[0]
    copies = pixels.copy(), latents.copy(), np.array(image)
    del result
    quick(painter, seed=6)
    np.testing.assert_array_equal(pixels, copies[0])
    np.testing.assert_array_equal(latents, copies[1])
    np.testing.assert_array_equal(np.asarray(image), copies[2])


def unpacked(latents):
    """FLUX's packed rows [1, tokens, 64] of a square image as [1, 16, side, side]."""
    side = int(latents.shape[1] ** 0.5)
    return latents.reshape(1, side, side, 16, 2, 2).transpose(0, 3, 1, 4, 2, 5).reshape(1, 16, 2 * side, 2 * side)


def test_reference_pictures(root, painter):
    """A stored case: noise, latents and image of PyTorch, in float32."""
    folder = root / "assets/redline-shapes/reference"
    reference = json.loads((folder / "reference.json").read_text())
    noise, latents = (unpacked(np.load(folder / f"case0_{name}.npy")) for name in ("noise", "latents"))
    with redline.ImagePipeline(painter.path, dtype="f32") as exact:
        result = exact(reference["cases"][0]["prompt"], init_noise=noise, keep_latents=True, true_cfg_scale=1.0,
                       num_inference_steps=reference["steps"])
    np.testing.assert_allclose(result.latents, latents, atol=2e-3)
    picture = np.asarray(PIL.open(folder / "case0_picture.png").convert("RGB")).astype(int)
    assert np.abs(result.pixels[0] - picture).max() <= 1  # of 255: roundings to 8 bits


def test_seeds_and_batches(painter):
    first, again, other = quick(painter), quick(painter, seed=None, generator=5), quick(painter, seed=6)
    np.testing.assert_array_equal(first.pixels[0], again.pixels[0])
    assert (first.pixels[0] != other.pixels[0]).any()
    several = quick(painter, num_images_per_prompt=2, seed_each=True)
    assert len(several.images) == 2
    assert np.abs(several.pixels[1].astype(int) - other.pixels[0]).max() <= 2
    assert quick(painter, ["a red circle", "a blue square"]).to_numpy().shape == (2, 128, 128, 3)
    assert quick(painter, seed=None).seed != quick(painter, seed=None).seed


def test_torch_generator_like(painter):
    class Generator:
        def initial_seed(self):
            return 5

    np.testing.assert_array_equal(quick(painter, seed=None, generator=Generator()).pixels[0], quick(painter).pixels[0])


def test_callback(painter):
    seen, kept = [], []

    def on_step(progress):
        kept.append((progress, progress.latents))
        seen.append((progress.step, progress.steps, progress.latents.shape, progress.preview(0, 64).size))

    result = quick(painter, callback=on_step, keep_latents=True)
    assert [s[:2] for s in seen] == [(1, 3), (2, 3), (3, 3)]
    assert seen[0][2] == result.latents.shape and max(seen[0][3]) == 64
    np.testing.assert_array_equal(kept[-1][1], result.latents)
    for late in (lambda: kept[0][0].latents, lambda: kept[0][0].preview()):
        with pytest.raises(redline.InvalidArgument, match="during its callback only"):
            late()
    with pytest.raises(redline.Cancelled):
        quick(painter, callback=lambda progress: progress.step < 2)

    def broken(progress):
        raise LookupError("of the callback")

    with pytest.raises(LookupError, match="of the callback"):
        quick(painter, callback=broken)
    quick(painter)


def test_parts_of_a_call(painter):
    """Prompts to embeddings, these to latents, these to images: what the whole call gives."""
    expected = quick(painter, negative_prompt="", keep_latents=True)
    embeds, negative = painter.encode_prompt(PROMPT), painter.encode_prompt("")
    assert embeds.text.ndim == 3 and embeds.text.dtype == np.float32 and embeds.pooled.shape[0] == 1 and embeds.warnings == []
    assert "text [1, " in repr(embeds)
    parts = dict(prompt_embeds=embeds.text, pooled_prompt_embeds=embeds.pooled, negative_prompt_embeds=negative.text,
                 negative_pooled_prompt_embeds=negative.pooled)
    result = quick(painter, None, **parts, keep_latents=True, skip_decode=True)
    assert result.images == [] and len(result) == 0 and result._repr_png_() is None and result.to_numpy().shape[0] == 0
    np.testing.assert_array_equal(result.latents, expected.latents)
    decoded = painter.decode(result.latents)
    np.testing.assert_array_equal(decoded.to_numpy(), expected.to_numpy())
    # Arrays of others, without a copy where the layout allows it; and with one where not.
    strided = np.repeat(result.latents, 2, axis=0)[::2]
    np.testing.assert_array_equal(painter.decode(strided).to_numpy(), expected.to_numpy())
    text = embeds.text.copy()
    del embeds
    quick(painter)
    np.testing.assert_array_equal(parts["prompt_embeds"], text)  # the arrays keep their memory
    assert len(painter.encode_prompt([PROMPT, "a"]).text) == 2
    assert painter.encode_prompt("word " * 600).warnings
    for call, message in (
            (lambda: painter.decode(np.zeros((1, 3, 4, 4), np.float32)), r"latents are \[1, 3, 4, 4\]"),
            (lambda: painter.decode(np.zeros((4, 4), np.float32)), "it must be"),
            (lambda: painter.decode(np.zeros((1, 16, 4, 4), np.int32)), "dtype int32"),
            (lambda: painter.decode(np.full((1, 16, 4, 4), np.nan, np.float32)), "not finite"),
            (lambda: painter.encode_prompt([]), "no prompt"),
            (lambda: painter.encode_prompt(5), "must be a str"),
            (lambda: painter.encode_prompt("x", max_sequence_length=-1), "max_sequence_length"),
            (lambda: quick(painter, None, prompt_embeds=text, pooled_prompt_embeds=parts["pooled_prompt_embeds"], true_cfg_scale=3.0),
             "guidance needs negative_prompt_embeds")):
        with pytest.raises(redline.InvalidArgument, match=message):
            call()


def test_progress_bar(painter, capsys):
    quick(painter, progress=True)
    bar = capsys.readouterr().err
    assert "3/3" in bar and bar.endswith("\n") and "step/s" in bar or "s/step" in bar
    quick(painter)
    assert capsys.readouterr().err == ""  # not a terminal


def test_image_to_image_and_inpainting(painter, tmp_path):
    start = quick(painter).images[0]
    near = quick(painter, image=start, strength=0.4, seed=9)
    assert near.images[0].size == start.size
    np.testing.assert_array_equal(quick(painter, image=np.asarray(start), strength=0.4, seed=9).pixels[0], near.pixels[0])
    start.save(tmp_path / "start.png")
    np.testing.assert_array_equal(quick(painter, image=tmp_path / "start.png", strength=0.4, seed=9).pixels[0], near.pixels[0])
    flipped = np.asarray(start)[:, ::-1]  # not contiguous
    np.testing.assert_array_equal(quick(painter, image=flipped, strength=0.4).pixels[0],
                                  quick(painter, image=flipped.copy(), strength=0.4).pixels[0])
    mask = np.zeros((128, 128), bool)
    mask[:64] = True
    painted = quick(painter, "a green square", image=start, mask_image=mask, strength=1.0, keep_unmasked=True)
    np.testing.assert_array_equal(painted.pixels[0][64:], np.asarray(start)[64:])


def test_step_cache(painter):
    result = painter(PROMPT, num_inference_steps=8, seed=1, cache="fbcache:threshold=0.5")
    assert result.cache.startswith("fbcache") and result.executed_share < 1
    budget = painter(PROMPT, num_inference_steps=8, seed=1, cache="redline", steps_budget=4)
    assert sum(budget.details["computed"]) < sum(painter(PROMPT, num_inference_steps=8, seed=1).details["computed"])
    with pytest.raises(redline.InvalidArgument, match="takes no budget of steps"):
        painter(PROMPT, num_inference_steps=8, cache="fbcache", steps_budget=4)


def test_rules_of_the_step_cache():
    rules = {rule.name: rule for rule in redline.step_cache_rules()}
    assert [name for name, rule in rules.items() if rule.is_default] == ["redline"]
    assert rules["redline"].takes_budget and rules["fbcache"].takes_quality and not rules["none"].takes_quality
    assert all(rule.summary for rule in rules.values())


def test_embeddings_in(root, painter):
    folder = root / "assets/redline-shapes/reference"
    embeds, pooled = np.load(folder / "case0_prompt_embeds.npy"), np.load(folder / "case0_pooled.npy")
    result = quick(painter, None, prompt_embeds=embeds.astype(np.float64), pooled_prompt_embeds=pooled, true_cfg_scale=1.0)
    assert result.to_numpy().shape[0] == embeds.shape[0]


def test_redline_image(painter, tmp_path):
    image = quick(painter).to_redline()[0]
    assert (image.width, image.height) == image.size == (128, 128) and "128x128" in repr(image)
    assert np.shares_memory(np.asarray(image), image.to_numpy()) and np.shares_memory(np.from_dlpack(image), image.to_numpy())
    image.save(tmp_path / "out.png")
    np.testing.assert_array_equal(np.asarray(PIL.open(tmp_path / "out.png")), image.to_numpy())
    with pytest.raises(ValueError, match="PNG files are written"):
        image.save(tmp_path / "out.webp")
    with pytest.raises(redline.FileError):
        image.save(tmp_path / "none/out.png")
    assert image.to_pil().size == image.size


def test_without_pillow(painter, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    result = quick(painter)
    assert isinstance(result.images[0], redline.Image) and result.images[0]._repr_png_()[:4] == b"\x89PNG"
    with pytest.raises(ValueError, match="Pillow"):
        quick(painter, image="picture.png")


@pytest.mark.parametrize("options, message", [
    ({"width": 100.5}, "width must be an integer"),
    ({"width": 33}, "33"),
    ({"num_inference_steps": -3}, "num_inference_steps|steps"),
    ({"cache": "nonsense"}, "nonsense"),
    ({"quality": 3.0}, "quality"),
    ({"seed": 1, "generator": 2}, "both given"),
    ({"mask_image": np.zeros((128, 128), np.uint8)}, "mask_image needs image"),
    ({"image": "nowhere.png"}, "nowhere.png"),
    ({"image": np.zeros((4, 4, 7), np.uint8)}, r"shape \[4, 4, 7\]; it must be \[height, width, 3\]"),
    ({"image": np.zeros((4, 4, 3), np.int32)}, "dtype int32; use uint8"),
    ({"image": np.full((4, 4, 3), 7.0)}, "floats from 7 to 7"),
    ({"image": 5}, "image must be a PIL image"),
    ({"init_noise": np.zeros((1, 2), np.float32)}, r"shape \[1, 2\]; it must be \[images, channels"),
    ({"init_noise": np.zeros((1, 4, 16, 16), np.int64)}, 'astype\\("float32"\\)'),
    ({"init_noise": np.zeros((1, 3, 5, 5), np.float32)}, "init_noise|noise"),
    ({"scheduler": "guess"}, "guess"),
    ({"num_inference_steps": 0}, "num_inference_steps is 0; leave it out for the model's own"),
    ({"strength": 0.5}, "strength needs image"),
    ({"num_images_per_prompt": 0}, "num_images_per_prompt is 0"),
    ({"guidance_begin": 0.8, "guidance_end": 0.2}, "guidance from 0.8 to 0.2 of the steps"),
    ({"callback": 3}, "callback must be a function of a StepProgress, not 3"),
])
def test_bad_arguments(painter, options, message):
    with pytest.raises(redline.InvalidArgument, match=message):
        painter(PROMPT, **{"num_inference_steps": 2, **options})


def test_the_device_is_an_option(painter, root):
    folder = root / "assets/redline-shapes"
    with redline.ImagePipeline(folder, device="emu", max_side=64, max_batch=1, threads=2) as emulated:
        drawn = emulated("a red circle", width=64, height=64, num_inference_steps=1, true_cfg_scale=1, seed=2).to_numpy()[0]
    want = painter("a red circle", width=64, height=64, num_inference_steps=1, true_cfg_scale=1, seed=2).to_numpy()[0]
    assert np.abs(drawn.astype(int) - want).mean() < 3  # activations of both are rounded to 16 bits
    with pytest.raises(redline.InvalidArgument, match='unknown device "gpu"'):
        redline.ImagePipeline(folder, device="gpu")


def test_unknown_names_closing_and_pickling(painter, root):
    with pytest.raises(TypeError, match="'steps'; use num_inference_steps"):
        painter(PROMPT, steps=3)
    with pytest.raises(ValueError, match="a prompt is needed"):
        painter()
    with pytest.raises(TypeError, match=r"redline\.ImagePipeline\(path\)"):
        pickle.dumps(painter)
    with pytest.raises(redline.Error):
        redline.ImagePipeline(root / "assets/redline-tales")
    with redline.ImagePipeline(painter.path) as other:
        assert other.describe()["family"] and other.defaults
    with pytest.raises(redline.ClosedError, match="this pipeline is closed"):
        other(PROMPT)


def test_threads_take_turns(painter):
    expected = [quick(painter, seed=i).pixels[0] for i in range(3)]
    found = [None] * 3

    def run(i):
        found[i] = quick(painter, seed=i).pixels[0]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a, b in zip(expected, found):
        np.testing.assert_array_equal(a, b)


def test_masks_count_by_luminance_and_what_is_transparent_is_kept(painter):
    """Green (0.587 * 255 = 150) is regenerated; red (76) and what is transparent are kept."""
    base = quick(painter).pixels[0]
    drawn = {}
    for name, left, right in (("gray", (255, 255, 255, 255), (0, 0, 0, 255)), ("colour", (0, 255, 0, 255), (255, 0, 0, 255)),
                              ("alpha", (255, 255, 255, 255), (255, 255, 255, 0))):
        mask = np.empty((128, 128, 4), np.uint8)
        mask[:, :64], mask[:, 64:] = left, right
        drawn[name] = [quick(painter, "a yellow star", image=base, mask_image=m, strength=1.0).pixels[0]
                       for m in (mask, PIL.fromarray(mask))]
    for name, (of_array, of_pil) in drawn.items():
        np.testing.assert_array_equal(of_array, of_pil)
        np.testing.assert_array_equal(of_array, drawn["gray"][0], name)


def test_images_of_any_size_are_resized_as_pillow_does(painter):
    photo = np.random.default_rng(0).integers(0, 256, (75, 100, 3), np.uint8)
    result = quick(painter, image=photo, strength=0.5)
    assert result.images[0].size == (96, 64) and any("resized from 100x75 to 96x64 (stretch)" in w for w in result.warnings)
    resized = np.asarray(PIL.fromarray(photo).resize((96, 64), PIL.LANCZOS))
    np.testing.assert_array_equal(result.pixels, quick(painter, image=resized, strength=0.5).pixels)
    with pytest.raises(redline.InvalidArgument, match="stretch, crop or fit"):
        quick(painter, image=photo, resize="zoom")


def test_files_are_turned_by_their_orientation(painter, tmp_path):
    photo = PIL.fromarray(np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8))
    exif = PIL.Exif()
    exif[0x0112] = 6
    photo.save(tmp_path / "turned.png", exif=exif)
    assert quick(painter, image=tmp_path / "turned.png", strength=0.5).images[0].size == (64, 96)


@pytest.mark.parametrize("rule", [rule.name for rule in redline.step_cache_rules() if rule.name not in ("mask", "dbcache")])
def test_every_cache_rule_runs_with_the_defaults(painter, rule):
    assert len(quick(painter, num_inference_steps=4, cache=rule).step_ms) == 4


def test_few_computed_steps_are_named(painter):
    few = quick(painter, num_inference_steps=12, steps_budget=1)
    assert any("computed 1 of 12 steps" in w and "steps_budget 3" in w for w in few.warnings)
    assert not any("step cache computed" in w for w in quick(painter, num_inference_steps=12, steps_budget=6).warnings)


def test_notation_of_other_programs_is_named(painter):
    warnings = quick(painter, "a (red:1.3) circle <lora:style:1> at (8:30)").warnings
    assert any('"(red:1.3)" in a prompt is text' in w for w in warnings) and any('"<lora:"' in w for w in warnings)
    assert quick(painter, "a red circle (large), at 8:30").warnings == []

"""redline.diffusers: pipelines of diffusers with small random networks (tiny_pipelines.py), against the same pipelines in PyTorch."""
import copy
import gc
import warnings
import weakref

import pytest
from tiny_pipelines import (FIXED, LORA_NETWORKS, PIPELINES, SIDE, TOKENS, accelerated, allowed, build, diffusers, latents_of,
                            lora_of, paint, psnr, torch)

import redline
import redline.diffusers


@pytest.mark.parametrize("name", PIPELINES)
def test_latents(name):
    expected, tolerance = allowed(name)
    pipe = accelerated(name)
    torch.testing.assert_close(paint(pipe, name), expected, atol=tolerance, rtol=0)
    report = redline.diffusers.describe(pipe)
    assert set(report) == {key for key, part in pipe.components.items() if isinstance(part, torch.nn.Module)}
    assert all(part["memory"]["packed_weights"] > 0 for part in report.values())
    # With a cache of none the same again.
    redline.diffusers.apply_cache(pipe, "none")
    torch.testing.assert_close(paint(pipe, name), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", PIPELINES)
def test_pictures(name):
    expected = paint(build(name), name, output_type="np")
    # 8 bits hide float32's errors.
    found = paint(accelerated(name), name, output_type="np")
    assert psnr(found, expected) >= 50 and abs(found - expected).max() < 1 / 255
    assert expected.std() > 0.01


def test_sizes_batches_and_prompts():
    expected = paint(build("sd"), "sd", height=48, width=32, latents=None, num_images_per_prompt=2,
                     generator=torch.manual_seed(1), negative_prompt="blurred")
    pipe = accelerated("sd")
    got = paint(pipe, "sd", height=48, width=32, latents=None, num_images_per_prompt=2, generator=torch.manual_seed(1),
                negative_prompt="blurred")
    _, tolerance = allowed("sd")
    torch.testing.assert_close(got, expected, atol=2 * tolerance, rtol=0)
    with pytest.raises(redline.InvalidArgument, match="max_batch"):
        paint(pipe, "sd", latents=None, num_images_per_prompt=8)
    # Another prompt is another image: what was computed from the text before is not used again.
    def other(p):
        return p("two boats", **dict(height=SIDE, width=SIDE, num_inference_steps=3, latents=latents_of(p), output_type="latent")).images

    torch.testing.assert_close(other(pipe), other(build("sd")), atol=tolerance, rtol=0)


def test_image_to_image_and_callbacks():
    """The VAE's encoder, a loop that begins late, and a callback that changes the latents and the guidance."""
    def run(pipe):
        steps = []

        def on_step(pipe, step, timestep, values):
            steps.append((step, int(timestep)))
            if step == 1:
                values["latents"] = values["latents"] * 0.9
            return values

        torch.manual_seed(5)
        start = torch.rand(1, 3, SIDE, SIDE)
        images = diffusers.StableDiffusionImg2ImgPipeline(**pipe.components, requires_safety_checker=False)
        images.set_progress_bar_config(disable=True)
        result = images("a lighthouse", image=start, strength=0.7, num_inference_steps=5, generator=torch.manual_seed(2),
                        output_type="latent", callback_on_step_end=on_step).images
        return result, steps

    (expected, steps), (got, seen) = run(build("sd")), run(accelerated("sd"))
    assert steps == seen and len(steps) == 3
    torch.testing.assert_close(got, expected, atol=1e-4 * float(expected.abs().max()), rtol=0)


def test_true_cfg_scale_of_flux():
    """Branches of guidance in calls of their own, told apart by cache_context()."""
    more = dict(true_cfg_scale=3.0, negative_prompt="blurred")
    expected, tolerance = allowed("flux", **more)
    torch.testing.assert_close(paint(accelerated("flux"), "flux", **more), expected, atol=tolerance, rtol=0)


def picture_and_mask():
    torch.manual_seed(5)
    mask = torch.zeros(1, 1, SIDE, SIDE)
    mask[..., : SIDE // 2] = 1
    return torch.rand(1, 3, SIDE, SIDE), mask


# Classes of image to image and inpainting; PixArt has neither.
OTHERS = {"sd": ("StableDiffusionImg2ImgPipeline", "StableDiffusionInpaintPipeline"),
          "sdxl": ("StableDiffusionXLImg2ImgPipeline", "StableDiffusionXLInpaintPipeline"),
          "sd3": ("StableDiffusion3Img2ImgPipeline", "StableDiffusion3InpaintPipeline"),
          "flux": ("FluxImg2ImgPipeline", "FluxInpaintPipeline")}


@pytest.mark.parametrize("kind", ["image to image", "inpainting"])
@pytest.mark.parametrize("name", OTHERS)
def test_pictures_from_pictures(name, kind):
    """50 dB against PyTorch in float32, with a callback that changes the latents."""
    cls = getattr(diffusers, OTHERS[name][kind == "inpainting"])

    def run(pipe):
        steps = []

        def on_step(pipe, step, timestep, values):
            steps.append(step)
            return {"latents": values["latents"] * 0.95}

        own = {key: part for key, part in pipe.components.items() if part is not None or name != "sd"}
        more = dict(requires_safety_checker=False, safety_checker=None, feature_extractor=None) if name == "sd" else {}
        other = cls(**{**own, **more})
        other.set_progress_bar_config(disable=True)
        image, mask = picture_and_mask()
        settings = dict(FIXED.get(name, {}), image=image, strength=0.7, num_inference_steps=5, generator=torch.manual_seed(2),
                        output_type="np", callback_on_step_end=on_step)
        if kind == "inpainting":
            settings.update(mask_image=mask, height=SIDE, width=SIDE)
        return other("a lighthouse", **settings).images, steps

    more = dict(channels=16) if name == "sd3" else {}  # its inpainting takes no other number
    plain, fast = build(name, **more), redline.diffusers.accelerate(build(name, **more), dtype="f32", threads=2)
    (expected, steps), (got, seen) = run(plain), run(fast)
    assert steps == seen and len(steps) in (3, 4)  # 0.7 * 5, which schedulers round each their way
    assert expected.std() > 0.01 and psnr(got, expected) >= 50


def test_lora_of_pixart():
    """Its pipeline has no loader of LoRA: through the transformer."""
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(r=3, target_modules=["to_q", "to_v", "net.2"], init_lora_weights="gaussian")
    images = []
    for pipe in (build("pixart"), accelerated("pixart")):
        torch.manual_seed(9)
        inject_adapter_in_model(config, pipe.transformer)
        for key, parameter in pipe.transformer.named_parameters():
            if "lora_B" in key:
                parameter.data.normal_(0, 0.3)
        images.append(paint(pipe, "pixart", output_type="np"))
    assert psnr(images[1], images[0]) >= 50
    assert psnr(images[0], paint(build("pixart"), "pixart", output_type="np")) < 40  # the adapter does something


@pytest.fixture(name="shapes", scope="module")
def shapes_fixture(root, painter):
    return painter.path


def test_the_bundled_pipeline(shapes):
    """Text to image, image to image, inpainting and a LoRA of redline-shapes at 50 dB against PyTorch in float32."""
    plain = diffusers.FluxPipeline.from_pretrained(shapes, torch_dtype=torch.float32)
    fast = diffusers.FluxPipeline.from_pretrained(shapes, torch_dtype=torch.float32)
    redline.diffusers.accelerate(fast, dtype="f32", threads=2)
    lora = {}
    random = torch.Generator().manual_seed(1)
    for key, module in plain.transformer.named_modules():
        if isinstance(module, torch.nn.Linear) and "attn.to_" in key:
            lora[f"transformer.{key}.lora_A.weight"] = torch.randn(4, module.in_features, generator=random) * 0.2
            lora[f"transformer.{key}.lora_B.weight"] = torch.randn(module.out_features, 4, generator=random) * 0.2
    side, pictures = 128, []
    for pipe in (plain, fast):
        pipe.set_progress_bar_config(disable=True)
        common = dict(num_inference_steps=3, output_type="np", max_sequence_length=64)
        size = dict(height=side, width=side)
        prompt = "a large red circle on a blue background"
        made = [pipe(prompt, **common, **size, generator=torch.manual_seed(1)).images]
        image = torch.from_numpy(made[0]).permute(0, 3, 1, 2)
        for cls in (diffusers.FluxImg2ImgPipeline, diffusers.FluxInpaintPipeline):
            other = cls(**pipe.components)
            other.set_progress_bar_config(disable=True)
            mask = dict(mask_image=torch.cat([torch.ones(1, 1, side // 2, side), torch.zeros(1, 1, side // 2, side)], 2))
            made.append(other("a green square", image=image, strength=0.8, generator=torch.manual_seed(2), **common, **size,
                              **(mask if "Inpaint" in cls.__name__ else {})).images)
        pipe.load_lora_weights(dict(lora))
        made.append(pipe(prompt, **common, **size, generator=torch.manual_seed(1)).images)
        pictures.append(made)
    assert [psnr(got, expected) >= 50 for expected, got in zip(*pictures, strict=True)] == [True] * 4
    assert psnr(pictures[0][3], pictures[0][0]) < 40


def test_inpainting_network():
    """Nine channels: latents, mask and masked image."""
    def run(pipe):
        images = diffusers.StableDiffusionInpaintPipeline(**pipe.components, requires_safety_checker=False)
        images.set_progress_bar_config(disable=True)
        torch.manual_seed(5)
        image, mask = torch.rand(1, 3, SIDE, SIDE), torch.zeros(1, 1, SIDE, SIDE)
        mask[..., :16] = 1
        return images("a lighthouse", image=image, mask_image=mask, height=SIDE, width=SIDE, num_inference_steps=3,
                      generator=torch.manual_seed(2), output_type="latent").images

    expected = run(build("sd", in_channels=9))
    pipe = redline.diffusers.accelerate(build("sd", in_channels=9), dtype="f32")
    torch.testing.assert_close(run(pipe), expected, atol=1e-4 * float(expected.abs().max()), rtol=0)


def test_half_precision_keeps_its_types():
    pipe = redline.diffusers.accelerate(build("sd", torch.bfloat16), threads=2)
    assert pipe.unet.dtype == pipe.vae.dtype == pipe.dtype == torch.bfloat16 and pipe.device.type == "cpu"
    got = paint(pipe, "sd", torch.bfloat16)
    assert got.dtype == torch.bfloat16
    expected = paint(build("sd"), "sd")
    # Latents are rounded to 8 bits in each of three steps, weights once; measured, 0.02 of the largest latent.
    assert float((got.float() - expected).abs().max()) < 0.1 * float(expected.abs().max())


# ---- LoRA ----


@pytest.mark.parametrize("name", LORA_NETWORKS)
def test_lora(name):
    """Every state of LoRA gives the image that PyTorch gives."""
    plain, fast = build(name), accelerated(name)
    first, second = (lora_of(plain, seed, LORA_NETWORKS[name]) for seed in (11, 12))
    before, tolerance = allowed(name, lambda pipe: pipe.load_lora_weights(
        {key: value.to(pipe.dtype) for key, value in first.items()}, adapter_name="first"))
    tolerance *= 2  # two adapters at once
    seen = []

    def both(change, **more):
        results = []
        for pipe in (plain, fast):
            change(pipe)
            results.append(paint(pipe, name, **more))
        torch.testing.assert_close(results[1], results[0], atol=tolerance, rtol=0)
        seen.append(results[0])

    both(lambda pipe: None)
    both(lambda pipe: pipe.load_lora_weights(dict(first), adapter_name="first"))
    torch.testing.assert_close(seen[-1], before, atol=tolerance, rtol=0)
    both(lambda pipe: pipe.set_adapters("first", 0.4))
    both(lambda pipe: pipe.load_lora_weights(dict(second), adapter_name="second"))
    both(lambda pipe: pipe.set_adapters(["first", "second"], [0.7, 0.5]))
    both(lambda pipe: pipe.disable_lora())
    torch.testing.assert_close(seen[-1], seen[0], atol=tolerance, rtol=0)
    both(lambda pipe: pipe.enable_lora())
    both(lambda pipe: pipe.delete_adapters("second"))
    both(lambda pipe: pipe.fuse_lora(lora_scale=0.5))
    both(lambda pipe: pipe.unfuse_lora())
    both(lambda pipe: pipe.fuse_lora())
    both(lambda pipe: pipe.unload_lora_weights())  # what was fused stays
    # Each state but the pairs that are meant to be equal is another image.
    different = [0, 1, 2, 4, 8]
    for i in different:
        for k in different:
            assert i == k or float((seen[i] - seen[k]).abs().max()) > 4 * tolerance


def test_lora_scale_of_a_call_and_changes_in_place():
    plain, fast = build("sd"), accelerated("sd")
    lora = lora_of(plain, 11, ("unet", "text_encoder"))
    _, tolerance = allowed("sd", lambda pipe: pipe.load_lora_weights({k: v.to(pipe.dtype) for k, v in lora.items()}))
    images = []
    for pipe in (plain, fast):
        pipe.load_lora_weights({key: value.clone() for key, value in lora.items()})
        images.append([paint(pipe, "sd"), paint(pipe, "sd", cross_attention_kwargs={"scale": 0.3}), paint(pipe, "sd")])
        for key, parameter in pipe.unet.named_parameters():
            if "lora_B" in key:
                parameter.data.mul_(0.5)
        images[-1].append(paint(pipe, "sd"))
    for expected, got in zip(*images, strict=True):
        torch.testing.assert_close(got, expected, atol=2 * tolerance, rtol=0)
    torch.testing.assert_close(images[1][0], images[1][2], atol=0, rtol=0)
    assert float((images[1][0] - images[1][1]).abs().max()) > 4 * tolerance
    assert float((images[1][0] - images[1][3]).abs().max()) > 4 * tolerance


def test_lora_from_before():
    """Adapters that are loaded when the pipeline is accelerated go on; fused ones are refused."""
    plain, fast = build("flux"), build("flux")
    lora = lora_of(plain, 11, ("transformer", "text_encoder"))
    for pipe in (plain, fast):
        pipe.load_lora_weights(dict(lora), adapter_name="style")
    fused = copy.deepcopy(fast.transformer)
    _, tolerance = allowed("flux", lambda pipe: pipe.load_lora_weights({k: v.to(pipe.dtype) for k, v in lora.items()}))
    redline.diffusers.accelerate(fast, dtype="f32")
    torch.testing.assert_close(paint(fast, "flux"), paint(plain, "flux"), atol=tolerance, rtol=0)
    fused.fuse_lora()
    other = build("flux")
    other.transformer = fused
    with pytest.raises(redline.InvalidArgument, match=r"unfuse_lora\(\) first"):
        redline.diffusers.accelerate(other, dtype="f32")


def test_lora_errors():
    fast = accelerated("flux", max_lora_rank=2)
    fast.load_lora_weights(lora_of(fast, 11, ("transformer",)))
    with pytest.raises(redline.InvalidArgument, match="rank 3"):
        paint(fast, "flux")
    fast.unload_lora_weights()
    paint(fast, "flux")
    from peft import LoraConfig

    fast = accelerated("sd")
    fast.unet.add_adapter(LoraConfig(r=2, target_modules=["to_q"], use_dora=False, init_lora_weights="gaussian"), "plain")
    paint(fast, "sd")
    fast.unet.add_adapter(LoraConfig(r=2, target_modules=["to_k"], lora_bias=True), "bias")
    fast.unet.set_adapter("bias")
    with pytest.raises(redline.Unsupported, match="LoRA bias"):
        paint(fast, "sd")


# ---- the modules ----


def test_memory_is_given_back():
    pipe = build("flux")
    weights = [weakref.ref(parameter) for name in ("transformer", "text_encoder", "text_encoder_2", "vae")
               for key, parameter in getattr(pipe, name).named_parameters() if "final_layer_norm" not in key or name != "text_encoder"]
    assert len(weights) > 200
    redline.diffusers.accelerate(pipe, dtype="f32")
    gc.collect()
    assert [ref for ref in weights if ref() is not None] == []
    weight = pipe.transformer.proj_out.weight
    assert weight.shape == (16, 32) and weight.dtype == torch.float32 and weight.device.type == "cpu"
    with pytest.raises(redline.Unsupported, match="moved into Redline"):
        weight + 1
    with pytest.raises(redline.Unsupported, match="moved into Redline"):
        pipe.transformer.proj_out(torch.zeros(1, 32))


def test_the_caller_may_change_the_tensors_afterwards():
    """The engine's weights are its own: also SD3's table of positions, of which it cuts a part in every run."""
    expected = paint(accelerated("sd3"), "sd3")
    pipe = build("sd3")
    tensors = [tensor for part in (pipe.transformer, pipe.vae) for tensor in part.state_dict().values()]
    redline.diffusers.accelerate(pipe, dtype="f32", threads=2)
    for tensor in tensors:
        tensor.fill_(float("nan"))
    torch.testing.assert_close(paint(pipe, "sd3"), expected, atol=0, rtol=0)


def test_modules_stay_what_they_were():
    pipe = accelerated("sd")
    assert isinstance(pipe.unet, diffusers.UNet2DConditionModel) and type(pipe.unet).__name__ == "UNet2DConditionModel"
    assert pipe.unet.config.cross_attention_dim == 32 and pipe.text_encoder.config.hidden_size == 32
    assert pipe.to("cpu") is pipe and pipe.device.type == "cpu"
    assert redline.diffusers.accelerate(pipe) is pipe  # nothing is left to do
    pipe.unet.to(torch.bfloat16)
    assert pipe.unet.dtype == torch.bfloat16
    with pytest.raises(redline.Unsupported, match="stays on the CPU"):
        pipe.unet.to("meta")
    out = pipe.unet(torch.randn(1, 4, 16, 16), 10, torch.randn(1, 5, 32), return_dict=False)
    assert isinstance(out, tuple) and out[0].shape == (1, 4, 16, 16)
    with pytest.raises(redline.Unsupported, match="down_block_additional_residuals"):
        pipe.unet(torch.randn(1, 4, 16, 16), 10, torch.randn(1, 5, 32), down_block_additional_residuals=[torch.zeros(1)])
    posterior = pipe.vae.encode(torch.rand(1, 3, 32, 32)).latent_dist
    assert posterior.mean.shape == (1, 4, 16, 16) and posterior.sample().shape == posterior.mean.shape
    states = pipe.text_encoder(torch.ones(1, TOKENS, dtype=torch.long), output_hidden_states=True).hidden_states
    assert len(states) == 4 and states[-2].shape == (1, TOKENS, 32)
    with pytest.raises(redline.Unsupported, match="clip_skip"):
        states[-1]


def test_tiny_autoencoder():
    torch.manual_seed(0)
    plain = diffusers.AutoencoderTiny(encoder_block_out_channels=(32, 32), decoder_block_out_channels=(32, 32), num_encoder_blocks=(1, 2),
                                      num_decoder_blocks=(2, 1)).requires_grad_(False)
    pipe = build("sd")
    pipe.vae = copy.deepcopy(plain)
    redline.diffusers.accelerate(pipe, dtype="f32")
    picture = torch.rand(2, 3, 32, 32) * 2 - 1
    latents = plain.encode(picture).latents
    torch.testing.assert_close(pipe.vae.encode(picture).latents, latents)
    torch.testing.assert_close(pipe.vae.decode(latents).sample, plain.decode(latents).sample)


def test_masked_text():
    """PixArt's T5 and transformer do not attend to the padding."""
    pipe = accelerated("pixart")
    ids = torch.tensor([[5, 6, 7, 0, 0], [5, 6, 7, 8, 9]])
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    got = pipe.text_encoder(ids, attention_mask=mask)[0]
    expected = build("pixart").text_encoder(ids, attention_mask=mask)[0]
    torch.testing.assert_close(got[0, :3], expected[0, :3], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got[1], expected[1], atol=1e-5, rtol=1e-5)
    with pytest.raises(redline.Unsupported, match="ones and then zeros"):
        pipe.text_encoder(ids, attention_mask=mask.flip(1))


def test_unsupported_modules():
    pipe = build("flux")
    pipe.register_modules(transformer=diffusers.PriorTransformer(num_attention_heads=2, attention_head_dim=8, num_layers=1,
                                                                 embedding_dim=8, num_embeddings=4))
    with pytest.raises(redline.Unsupported, match="transformer is a PriorTransformer; Redline has FluxTransformer2DModel"):
        redline.diffusers.accelerate(pipe)
    assert not redline.diffusers.describe(pipe)  # nothing was moved
    with pytest.warns(UserWarning, match="PriorTransformer.*stays in PyTorch"):
        redline.diffusers.accelerate(pipe, strict=False)
    assert set(redline.diffusers.describe(pipe)) == {"vae", "text_encoder", "text_encoder_2"}
    assert float(pipe.transformer.proj_in.weight.sum()) != 0


def test_unsupported_settings():
    """A class that the engine has, with a setting that it has not."""
    pipe = build("sd", class_embed_type="timestep")
    with pytest.raises(redline.Unsupported, match="unet: .*class_embed_type"):
        redline.diffusers.accelerate(pipe)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        redline.diffusers.accelerate(pipe, strict=False)
    assert any("class_embed_type" in str(w.message) for w in seen)
    assert "unet" not in redline.diffusers.describe(pipe)
    pipe = build("sd")
    pipe.unet.to(torch.float64)
    with pytest.raises(redline.Unsupported, match="dtype torch.float64"):
        redline.diffusers.accelerate(pipe)
    with pytest.raises(redline.InvalidArgument, match="dtype"):
        redline.diffusers.accelerate(build("sd"), dtype=torch.float16)
    pipe = build("sd")
    pipe.unet.to("meta")
    with pytest.raises(redline.Unsupported, match="device meta"):
        redline.diffusers.accelerate(pipe)

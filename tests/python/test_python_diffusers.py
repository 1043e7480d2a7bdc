"""redline.diffusers: pipelines of diffusers with small random networks, against the same pipelines in PyTorch.

Tolerances. PyTorch's float32 result differs from its float64 one by what rounding and the order of sums do to this network over
this number of steps. The engine rounds as often in another order, so its error is of that size; ERRORS of it are allowed.
"""
import copy
import gc
import math
import warnings
import weakref
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch diffusers transformers peft accelerate")
diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install diffusers transformers peft accelerate")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("peft", reason="peft is not installed: LoRA in diffusers needs it")

import redline  # noqa: E402
import redline.diffusers  # noqa: E402

# PyTorch's threads wait for work by spinning, beside the engine's.
torch.set_num_threads(1)
ERRORS = 8
TOKENS = 12
EOS = 99


class Words:
    """A tokenizer: a hash of each word, an end token, zeros."""

    model_max_length = TOKENS
    added_tokens_encoder: ClassVar = {}

    def __call__(self, texts, padding=None, max_length=None, truncation=False, **_):
        texts = [texts] if isinstance(texts, str) else list(texts)
        length = max_length or TOKENS
        ids, mask = torch.zeros(len(texts), length, dtype=torch.long), torch.zeros(len(texts), length, dtype=torch.long)
        for row, text in enumerate(texts):
            words = [1 + sum(word.encode()) % 90 for word in text.split()][: length - 1] + [EOS]
            ids[row, : len(words)] = torch.tensor(words)
            mask[row, : len(words)] = 1
        return transformers.BatchEncoding({"input_ids": ids, "attention_mask": mask})

    def tokenize(self, text):
        return text.split()

    def batch_decode(self, ids):
        return [str(row) for row in ids]


def clip(width=32, projects=False, **more):
    config = transformers.CLIPTextConfig(hidden_size=width, intermediate_size=37, num_hidden_layers=3, num_attention_heads=4,
                                         vocab_size=EOS + 1, max_position_embeddings=TOKENS, projection_dim=width, bos_token_id=0,
                                         eos_token_id=EOS, pad_token_id=0, **more)
    return (transformers.CLIPTextModelWithProjection if projects else transformers.CLIPTextModel)(config)


def t5(width=32):
    return transformers.T5EncoderModel(transformers.T5Config(
        vocab_size=EOS + 1, d_model=width, d_kv=8, d_ff=37, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu"))


def vae(channels=4, **more):
    return diffusers.AutoencoderKL(
        block_out_channels=(32, 64), in_channels=3, out_channels=3, latent_channels=channels, norm_num_groups=16,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, **more)


def unet(**more):
    return diffusers.UNet2DConditionModel(**{**dict(
        block_out_channels=(32, 64), layers_per_block=1, sample_size=16, in_channels=4, out_channels=4, norm_num_groups=16,
        cross_attention_dim=32, attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D")), **more})


def sd(**more):
    scheduler = diffusers.DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1,
                                        clip_sample=False, set_alpha_to_one=False)
    return diffusers.StableDiffusionPipeline(
        vae=vae(), text_encoder=clip(), tokenizer=Words(), unet=unet(**more), scheduler=scheduler, safety_checker=None,
        feature_extractor=None, requires_safety_checker=False)


def sdxl():
    return diffusers.StableDiffusionXLPipeline(
        vae=vae(), text_encoder=clip(), text_encoder_2=clip(projects=True, hidden_act="gelu"), tokenizer=Words(), tokenizer_2=Words(),
        unet=unet(cross_attention_dim=64, addition_embed_type="text_time", addition_time_embed_dim=8,
                  projection_class_embeddings_input_dim=6 * 8 + 32, transformer_layers_per_block=2, use_linear_projection=True),
        scheduler=diffusers.EulerDiscreteScheduler(beta_schedule="scaled_linear", steps_offset=1, timestep_spacing="leading"))


def sd3():
    return diffusers.StableDiffusion3Pipeline(
        vae=vae(8, shift_factor=0.06, use_quant_conv=False, use_post_quant_conv=False), tokenizer=Words(), tokenizer_2=Words(),
        tokenizer_3=Words(), text_encoder=clip(projects=True), text_encoder_2=clip(projects=True, hidden_act="gelu"),
        text_encoder_3=t5(64), scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=16, patch_size=2, in_channels=8, out_channels=8, num_layers=3, attention_head_dim=8, num_attention_heads=4,
            caption_projection_dim=32, joint_attention_dim=64, pooled_projection_dim=64, pos_embed_max_size=24,
            qk_norm="rms_norm"))


def flux(guidance=True):
    return diffusers.FluxPipeline(
        vae=vae(4, shift_factor=0.06, use_quant_conv=False, use_post_quant_conv=False), tokenizer=Words(), tokenizer_2=Words(),
        text_encoder=clip(), text_encoder_2=t5(), scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        transformer=diffusers.FluxTransformer2DModel(
            patch_size=1, in_channels=16, num_layers=2, num_single_layers=2, attention_head_dim=16, num_attention_heads=2,
            joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8), guidance_embeds=guidance))


def pixart():
    return diffusers.PixArtSigmaPipeline(
        vae=vae(), tokenizer=Words(), text_encoder=t5(),
        scheduler=diffusers.DPMSolverMultistepScheduler(beta_schedule="scaled_linear"),
        transformer=diffusers.PixArtTransformer2DModel(
            sample_size=16, num_layers=3, patch_size=2, attention_head_dim=8, num_attention_heads=4, caption_channels=32,
            in_channels=4, cross_attention_dim=32, out_channels=8, attention_bias=True, activation_fn="gelu-approximate",
            num_embeds_ada_norm=1000, norm_elementwise_affine=False, norm_eps=1e-6, use_additional_conditions=False))


PIPELINES = {"sd": sd, "sdxl": sdxl, "sd3": sd3, "flux": flux, "pixart": pixart}
FIXED = {"pixart": dict(clean_caption=False, use_resolution_binning=False, max_sequence_length=TOKENS),
         "flux": dict(max_sequence_length=TOKENS), "sd3": dict(max_sequence_length=TOKENS)}
SIDE = 32


def build(name, dtype=torch.float32, **more):
    """The same random networks each time."""
    torch.manual_seed(7)
    pipe = PIPELINES[name](**more)
    for module in pipe.components.values():
        if not isinstance(module, torch.nn.Module):
            continue
        module.eval().requires_grad_(False)
        for key, parameter in module.named_parameters():
            # As they are made, layers that end a block are nearly zero.
            if parameter.ndim > 1 and "embed_tokens" not in key and "shared" not in key:
                parameter.normal_(0, parameter[0].numel() ** -0.5)
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(dtype)


def latents_of(pipe, batch=1):
    torch.manual_seed(3)
    denoiser = getattr(pipe, "transformer", None) or pipe.unet
    side = SIDE // pipe.vae_scale_factor
    if isinstance(pipe, diffusers.FluxPipeline):
        return torch.randn(batch, (side // 2) ** 2, denoiser.config.in_channels)
    return torch.randn(batch, denoiser.config.in_channels, side, side)


def paint(pipe, name, dtype=torch.float32, steps=3, output_type="latent", **more):
    # gives its latents to a scheduler that may scale them in place
    start = latents_of(pipe).to(dtype)
    settings = dict(FIXED.get(name, {}), height=SIDE, width=SIDE, num_inference_steps=steps, latents=start, output_type=output_type)
    settings.update(more)
    return pipe("a lighthouse at night", **settings).images


def exact_timestep_embedding(timesteps, embedding_dim, flip_sin_to_cos=False, downscale_freq_shift=1, scale=1, max_period=10000):
    """diffusers computes it in float32 for pipelines of every type: phases of thousands then err by up to 1e-4."""
    half = embedding_dim // 2
    exponent = -math.log(max_period) * torch.arange(half, dtype=torch.float64) / (half - downscale_freq_shift)
    phase = scale * timesteps.double()[:, None] * exponent.exp()
    parts = [phase.cos(), phase.sin()] if flip_sin_to_cos else [phase.sin(), phase.cos()]
    return torch.cat(parts, dim=-1)


def allowed(name, prepare=lambda pipe: None, **more):
    """PyTorch's result in float32, and the greatest difference that is allowed from it."""
    results = []
    for dtype in (torch.float32, torch.float64):
        pipe = build(name, dtype)
        prepare(pipe)
        with pytest.MonkeyPatch.context() as patch:
            if dtype == torch.float64:
                patch.setattr("diffusers.models.embeddings.get_timestep_embedding", exact_timestep_embedding)
            results.append(paint(pipe, name, dtype, **more))
    single, double = results
    error = float((single.double() - double.double()).abs().max())
    assert 0 < error < 1e-3 * float(double.abs().max())
    return single, ERRORS * error


def accelerated(name, **more):
    return redline.diffusers.accelerate(build(name), dtype="f32", threads=2, **more)


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
    assert abs(paint(accelerated(name), name, output_type="np") - expected).max() < 1 / 255
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


def test_true_guidance_of_flux():
    """Branches of guidance in calls of their own, told apart by cache_context()."""
    more = dict(true_cfg_scale=3.0, negative_prompt="blurred")
    expected, tolerance = allowed("flux", **more)
    torch.testing.assert_close(paint(accelerated("flux"), "flux", **more), expected, atol=tolerance, rtol=0)


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


def lora_of(pipe, seed, prefixes):
    """A LoRA of rank 3 on the attention of each network, as a file has it."""
    random = torch.Generator().manual_seed(seed)
    state = {}
    for prefix in prefixes:
        for name, module in getattr(pipe, prefix).named_modules():
            is_wanted = isinstance(module, torch.nn.Linear) and ("attn" in name or "ff.net" in name)
            if not is_wanted and not (prefix == "unet" and isinstance(module, torch.nn.Conv2d) and "resnets" in name):
                continue
            weight = module.weight
            down = (3, weight.shape[1], *weight.shape[2:])
            up = (weight.shape[0], 3) + (1,) * (weight.ndim - 2)
            state[f"{prefix}.{name}.lora_A.weight"] = torch.randn(down, generator=random) * 0.3
            state[f"{prefix}.{name}.lora_B.weight"] = torch.randn(up, generator=random) * 0.3
    assert state
    return state


LORA_NETWORKS = {"sd": ("unet", "text_encoder"), "sd3": ("transformer", "text_encoder"), "flux": ("transformer", "text_encoder"),
                 "sdxl": ("unet", "text_encoder", "text_encoder_2")}


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


# ---- caches ----


RULES = ["teacache:threshold=0.5", "fbcache:threshold=0.5", "easycache:threshold=10,warmup=1", "mask:steps=0+3"]


@pytest.mark.filterwarnings("ignore:step cache")  # teacache needs no block before its decision
@pytest.mark.parametrize("rule", RULES)
def test_caches(rule):
    pipe = accelerated("flux")
    exact = paint(pipe, "flux", steps=6)
    assert redline.diffusers.describe(pipe)["transformer"]["computed"] == []
    assert redline.diffusers.apply_cache(pipe, rule) is pipe
    first = paint(pipe, "flux", steps=6)
    report = redline.diffusers.describe(pipe)["transformer"]
    assert len(report["computed"]) == 6 and report["computed"][0] == 1
    assert sum(report["computed"]) < 6 and report["executed_share"] < 1
    assert report["cache"].startswith(rule.split(":")[0]) and not torch.equal(first, exact)
    # The next image begins anew.
    torch.testing.assert_close(paint(pipe, "flux", steps=6), first, atol=0, rtol=0)
    redline.diffusers.apply_cache(pipe, None)
    torch.testing.assert_close(paint(pipe, "flux", steps=6), exact, atol=0, rtol=0)


def test_cache_with_branches_of_guidance():
    """In one call (SD3, with the unconditional half first) and in calls of their own (FLUX): one decision for both."""
    for name, more in (("sd3", dict(guidance_scale=4.0)), ("flux", dict(true_cfg_scale=3.0, negative_prompt="blurred"))):
        pipe = redline.diffusers.apply_cache(accelerated(name), "mask:steps=0+2+4")
        paint(pipe, name, steps=6, **more)
        report = redline.diffusers.describe(pipe)["transformer"]
        assert report["computed"] == [1, 0, 1, 0, 1, 0]


def test_cache_follows_schedulers_without_a_step_index():
    pipe = accelerated("sd", cache="easycache:threshold=10,warmup=1")
    assert not hasattr(pipe.scheduler, "step_index")
    paint(pipe, "sd", steps=6)
    computed = redline.diffusers.describe(pipe)["unet"]["computed"]
    assert len(computed) == 6 and 0 < sum(computed) < 6


def test_cache_errors():
    with pytest.raises(redline.InvalidArgument, match="accelerate"):
        redline.diffusers.apply_cache(build("sd"), "easycache")
    pipe = accelerated("sd")
    with pytest.raises(redline.Unsupported, match="not divided into parts"):
        redline.diffusers.apply_cache(pipe, "fbcache")
    with pytest.raises(redline.InvalidArgument, match="no rule is called"):
        redline.diffusers.apply_cache(pipe, "nonesuch")
    with pytest.raises(redline.Unsupported, match="apply_cache"):
        accelerated("flux").transformer.enable_cache(None)


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

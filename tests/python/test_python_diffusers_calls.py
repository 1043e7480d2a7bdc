"""redline.diffusers beyond one image: step caches under the calls of several libraries, the report, unload()."""
import copy
import gc
import weakref

import pytest
from tiny_pipelines import PIPELINES, accelerated, build, diffusers, lora_of, paint, torch

import redline
import redline.diffusers


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
    # The next image resets the state.
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


def test_calls_of_paraattention_and_cache_dit():
    """What their users write gives the engine's rules with these settings."""
    calls = redline.diffusers

    def rule(pipe):
        paint(pipe, "flux", steps=6)
        return calls.describe(pipe)["transformer"]["cache"]

    pipe = calls.apply_cache_on_pipe(build("flux"), residual_diff_threshold=0.5)
    assert "fbcache" in rule(pipe) and "0.5" in rule(pipe)
    assert 0 < sum(calls.describe(pipe)["transformer"]["computed"]) < 6
    with pytest.raises(redline.InvalidArgument, match="front_blocks|blocks"):
        calls.enable_cache(pipe, calls.DBCacheConfig(Fn_compute_blocks=2))
    settings = dict(Fn_compute_blocks=1, Bn_compute_blocks=1, residual_diff_threshold=0.5, max_warmup_steps=2, max_cached_steps=3)
    config = calls.DBCacheConfig(**settings)
    pipe = calls.enable_cache(build("flux"), config, calls.TaylorSeerCalibratorConfig(taylorseer_order=1))
    assert "dbcache" in rule(pipe) and "taylor1" in rule(pipe)
    images = [paint(pipe, "flux", steps=6)]
    found = calls.summary(pipe)
    assert found["steps"] == 6 and found["cached_steps"] and found["cached_steps"][0] >= 2 and len(found["cached_steps"]) <= 3
    # The same as keywords, as a dict, and in a class of their own.
    other = type("TaylorSeerCalibratorConfig", (calls.TaylorSeerCalibratorConfig,), {})
    for arguments in ((None, None, dict(**settings, enable_taylorseer=True, taylorseer_order=1)), (settings, other(), {})):
        calls.enable_cache(pipe, arguments[0], arguments[1], **arguments[2])
        images.append(paint(pipe, "flux", steps=6))
    assert all(torch.equal(images[0], image) for image in images)
    calls.enable_cache(pipe, config, calls.FoCaCalibratorConfig())
    assert "foca" in rule(pipe)
    calls.disable_cache(pipe)
    assert calls.summary(pipe)["cached_steps"] == []
    masked = calls.enable_cache(build("flux"), Fn_compute_blocks=1, steps_computation_mask=[1, 0, 0, 1, 1, 0],
                                steps_computation_policy="static")
    paint(masked, "flux", steps=6)
    assert calls.summary(masked)["cached_steps"] == [1, 2, 5]
    pipe = accelerated("flux")
    pipe.transformer.enable_cache(diffusers.FirstBlockCacheConfig(threshold=0.5))  # diffusers' own call
    assert "fbcache" in rule(pipe)
    for wrong, error, message in (
            (dict(residual_diff_treshold=0.1), TypeError, "use residual_diff_threshold"),
            (dict(steps_computation_mask=[1, 0]), redline.Unsupported, "static"),
            (dict(force_refresh_step_hint=3), redline.Unsupported, "force_refresh_step_hint"),
            (dict(Fn_compute_blocks=1.5), redline.InvalidArgument, "must be an integer"),
            (dict(enable_taylorseer=True, taylorseer_order=7), redline.Unsupported, "orders 0 to 3")):
        with pytest.raises(error, match=message):
            calls.enable_cache(pipe, **wrong)
    pipe.transformer.disable_cache()
    with pytest.raises(redline.InvalidArgument, match="str is not a DBCacheConfig"):
        calls.enable_cache(pipe, "fast")


def test_report():
    pipe = build("flux")
    rows = {row["component"]: row for row in redline.diffusers.report(pipe)}
    assert all(row["runs in"] == "PyTorch" and "accelerate() was not called" in row["why"] for row in rows.values())
    before = rows["transformer"]["memory"]
    assert before == sum(t.numel() * 4 for t in pipe.transformer.state_dict().values())
    other = diffusers.PriorTransformer(num_attention_heads=2, attention_head_dim=8, num_layers=1, embedding_dim=8, num_embeddings=4)
    pipe.register_modules(text_encoder_2=other)
    pipe.register_modules(image_encoder=copy.deepcopy(other))
    with pytest.warns(UserWarning, match="text_encoder_2 is a PriorTransformer"):
        redline.diffusers.accelerate(pipe)  # a denoiser that is missing would be an error
    report = redline.diffusers.report(pipe)
    rows = {row["component"]: row for row in report}
    assert rows["transformer"]["runs in"] == "Redline" and rows["transformer"]["memory"] > 0
    assert rows["text_encoder_2"]["runs in"] == "PyTorch" and "PriorTransformer" in rows["text_encoder_2"]["why"]
    assert "no network of this kind" in rows["image_encoder"]["why"]
    assert "<table>" in report._repr_html_() and "image_encoder" in str(report)


# ---- unload ----


def saved(name, folder, dtype=torch.float32):
    """A pipeline whose modules come from files, as from_pretrained() makes it."""
    pipe = build(name)
    for key, module in pipe.components.items():
        if isinstance(module, torch.nn.Module):
            if not (folder / key).exists():
                module.save_pretrained(folder / key)
            pipe.register_modules(**{key: type(module).from_pretrained(folder / key, torch_dtype=dtype).eval()})
    return pipe


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("keeps", [False, True])
def test_unload(name, keeps, tmp_path):
    pipe = build(name) if keeps else saved(name, tmp_path)
    expected, before = paint(pipe, name), {key: type(part) for key, part in pipe.components.items()}
    state = {f"{key}.{k}": t.clone() for key, part in pipe.components.items() if isinstance(part, torch.nn.Module)
             for k, t in part.state_dict().items()}
    redline.diffusers.accelerate(pipe, dtype="f32", threads=2, keep_weights=keeps)
    fast = paint(pipe, name)
    assert pipe.unload() is pipe and not hasattr(pipe, "unload")
    assert {key: type(part) for key, part in pipe.components.items()} == before
    assert redline.diffusers.describe(pipe) == {}
    after = {f"{key}.{k}": t for key, part in pipe.components.items() if isinstance(part, torch.nn.Module)
             for k, t in part.state_dict().items()}
    assert after.keys() == state.keys() and all(torch.equal(after[k], state[k]) for k in state)
    torch.testing.assert_close(paint(pipe, name), expected, atol=0, rtol=0)
    redline.diffusers.accelerate(pipe, dtype="f32", threads=2)  # and again
    torch.testing.assert_close(paint(pipe, name), fast, atol=0, rtol=0)


def test_unload_keeps_adapters(tmp_path):
    images = []
    for unloads in (False, True):
        pipe = saved("sd", tmp_path)
        if unloads:
            redline.diffusers.accelerate(pipe, dtype="f32", threads=2)
        pipe.load_lora_weights(lora_of(build("sd"), 11, ("unet", "text_encoder")), adapter_name="first")
        pipe.load_lora_weights(lora_of(build("sd"), 12, ("unet",)), adapter_name="second")
        pipe.set_adapters("first", 0.7)
        pipe.fuse_lora(adapter_names=["first"])
        if unloads:
            paint(pipe, "sd")
            pipe.unload()
        images.append([paint(pipe, "sd")])
        pipe.unfuse_lora()
        pipe.set_adapters(["second"])
        images[-1].append(paint(pipe, "sd"))
    for expected, got in zip(*images, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-4 * float(expected.abs().max()), rtol=0)


def test_unload_of_weights_that_are_gone(tmp_path):
    pipe = accelerated("sd")
    with pytest.raises(redline.Unsupported, match="came from no file.*keep_weights=True"):
        pipe.unload()
    paint(pipe, "sd")  # nothing has happened
    pipe = saved("sd", tmp_path)
    with torch.no_grad():
        pipe.vae.decoder.conv_in.weight.mul_(2)
    redline.diffusers.accelerate(pipe, dtype="f32")
    with pytest.raises(redline.Unsupported, match=r"vae: decoder.conv_in.weight is not the same in"):
        pipe.unload()


def test_unload_of_half_precision(tmp_path):
    pipe = saved("sd", tmp_path, torch.bfloat16)
    weight = pipe.unet.conv_in.weight.detach().clone()
    redline.diffusers.accelerate(pipe)
    pipe.unload()
    assert pipe.unet.dtype == torch.bfloat16 and torch.equal(pipe.unet.conv_in.weight, weight)
    redline.diffusers.accelerate(pipe)
    pipe.unet.to(torch.float32)  # converted meanwhile
    pipe.unload()
    assert pipe.unet.dtype == torch.float32 and torch.equal(pipe.unet.conv_in.weight, weight.float())


def test_unload_of_files_of_a_variant(tmp_path):
    """model.fp16.safetensors, as many repositories have it."""
    pipe = build("sd", torch.float16)
    for key in ("unet", "vae", "text_encoder"):
        getattr(pipe, key).save_pretrained(tmp_path / key, variant="fp16")
        cls = type(getattr(pipe, key))
        pipe.register_modules(**{key: cls.from_pretrained(tmp_path / key, torch_dtype=torch.float16, variant="fp16")})
    weight = pipe.unet.conv_in.weight.detach().clone()
    redline.diffusers.accelerate(pipe)
    pipe.unload()
    assert pipe.unet.dtype == torch.float16 and torch.equal(pipe.unet.conv_in.weight, weight)


def test_unload_gives_the_engines_memory_back(tmp_path):
    pipe = saved("sd", tmp_path)
    redline.diffusers.accelerate(pipe, dtype="f32")
    networks = [weakref.ref(part._redline.network) for part in (pipe.unet, pipe.vae, pipe.text_encoder)]
    pipe.unload()
    gc.collect()
    assert [ref() for ref in networks] == [None] * 3

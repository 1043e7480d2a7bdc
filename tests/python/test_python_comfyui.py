"""The node pack against a stand-in of what ComfyUI gives to nodes: its graph of inputs, progress, interrupt, tensors."""
import copy
import importlib.util
import json
import math
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
import redline


class Interrupted(Exception):
    """As comfy.model_management.InterruptProcessingException."""


@pytest.fixture(name="comfy")
def comfy_fixture(monkeypatch, root):
    state = types.SimpleNamespace(progress=[], interrupt_at=None)

    class ProgressBar:
        def __init__(self, total):
            state.total = total

        def update_absolute(self, value, total=None):
            state.progress.append(value)

    def throw():
        if state.interrupt_at is not None and len(state.progress) >= state.interrupt_at:
            raise Interrupted

    modules = {
        "comfy": types.ModuleType("comfy"),
        "comfy.utils": types.SimpleNamespace(ProgressBar=ProgressBar),
        "comfy.model_management": types.SimpleNamespace(throw_exception_if_processing_interrupted=throw),
        "torch": types.SimpleNamespace(from_numpy=lambda array: array),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("comfyui_redline", root / "comfyui_redline/__init__.py",
                                                  submodule_search_locations=[str(root / "comfyui_redline")])
    pack = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "comfyui_redline", pack)
    spec.loader.exec_module(pack)
    state.nodes = pack.NODE_CLASS_MAPPINGS
    state.names = pack.NODE_DISPLAY_NAME_MAPPINGS
    yield state
    pack.NODE_CLASS_MAPPINGS["RedlineLoader"]._open.clear()
    for name in ("nodes", "model_cache"):
        sys.modules.pop(f"comfyui_redline.{name}", None)


def run_graph(nodes, graph, changes=()):
    """Runs a workflow in the API format as ComfyUI does: checks inputs against INPUT_TYPES, links outputs."""
    done = {}

    def output(node_id):
        if node_id in done:
            return done[node_id]
        node = graph[node_id]
        cls = nodes[node["class_type"]]
        kinds = cls.INPUT_TYPES()
        known = {**kinds["required"], **kinds.get("optional", {})}
        values = {}
        for name, value in {**node["inputs"], **dict(changes).get(node_id, {})}.items():
            kind = known[name][0]
            if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
                source = nodes[graph[value[0]]["class_type"]]
                assert source.RETURN_TYPES[value[1]] == kind
                value = output(value[0])[value[1]]
            elif isinstance(kind, list):
                assert value in kind
            elif kind in ("INT", "FLOAT"):
                assert known[name][1]["min"] <= value <= known[name][1]["max"]
            values[name] = value
        assert set(kinds["required"]) <= set(values)
        done[node_id] = getattr(cls(), cls.FUNCTION)(**values)
        assert len(done[node_id]) == len(cls.RETURN_TYPES)
        return done[node_id]

    return output


def workflow(root, name="text_to_image"):
    return json.loads((root / f"comfyui_redline/workflows/{name}.json").read_text())


def test_the_contract(comfy):
    assert set(comfy.names) == set(comfy.nodes)
    for cls in comfy.nodes.values():
        assert callable(getattr(cls, cls.FUNCTION)) and cls.CATEGORY == "redline"
        for group in cls.INPUT_TYPES().values():
            for kind in group.values():
                assert isinstance(kind, tuple) and isinstance(kind[0], (str, list))
                if len(kind) > 1 and "default" in kind[1] and isinstance(kind[0], list):
                    assert kind[1]["default"] in kind[0]


def test_the_workflow(comfy, root, painter):
    run = run_graph(comfy.nodes, workflow(root), {"1": {"path": painter.path}, "3": {"steps": 6}})
    image, report = run("3")
    assert image.shape == (1, 128, 128, 3) and image.dtype == np.float32
    assert 0 <= image.min() and image.max() <= 1 and image.std() > 0.01
    assert comfy.progress == [1, 2, 3, 4, 5, 6] and comfy.total == 6
    assert "% of the operations" in report
    assert run("1")[0] is run_graph(comfy.nodes, workflow(root), {"1": {"path": painter.path}})("1")[0]


@pytest.mark.parametrize("name", ["text_to_image", "encode_sample_decode", "cache_on_a_model"])
def test_workflows_fit_the_nodes(comfy, root, name):
    """Our nodes have all their inputs, with values that these take; the first output of ComfyUI's loader is a MODEL."""
    graph, own = workflow(root, name), 0
    for node in graph.values():
        if node["class_type"] not in comfy.nodes:
            continue
        own += 1
        kinds = comfy.nodes[node["class_type"]].INPUT_TYPES()
        known = {**kinds["required"], **kinds.get("optional", {})}
        assert set(kinds["required"]) <= set(node["inputs"]) <= set(known)
        for key, value in node["inputs"].items():
            kind = known[key][0]
            if isinstance(value, list):
                source = graph[value[0]]["class_type"]
                made = comfy.nodes[source].RETURN_TYPES[value[1]] if source in comfy.nodes else {"CheckpointLoaderSimple": "MODEL"}[source]
                assert made == kind
            elif isinstance(kind, list):
                assert value in kind
            elif kind in ("INT", "FLOAT"):
                assert known[key][1]["min"] <= value <= known[key][1]["max"]
            else:
                assert kind == "STRING" and isinstance(value, str)
    assert own


def test_encode_sample_and_decode(comfy, root, painter):
    """The nodes one by one give the image of the node that does it all."""
    graph = workflow(root, "encode_sample_decode")
    loader = {"path": painter.path, "threads": 2}
    run = run_graph(comfy.nodes, graph, {"1": loader, "4": {"rule": "none"}, "5": {"steps": 4}})
    image = run("6")[0]
    latent = run("5")[0]["samples"]
    assert latent.shape == (1, 16, 16, 16) and latent.dtype == np.float32
    (text, more), = run("2")[0]
    assert text.shape[0] == 1 and more["pooled_output"].shape[0] == 1
    expected = painter("a large red house on a meadow", negative_prompt="", seed=6, num_inference_steps=4, seed_each=True)
    # The latents go to the autoencoder's scale and back: a rounding of float32, at most a step of 8 bits.
    assert np.abs(image[0] * 255 - expected.pixels[0]).max() <= 1
    alone = copy.deepcopy(graph)
    del alone["5"]["inputs"]["negative"]
    other = run_graph(comfy.nodes, alone, {"1": loader, "4": {"rule": "none"}, "5": {"steps": 4}})("6")[0]
    expected = painter("a large red house on a meadow", seed=6, num_inference_steps=4, true_cfg_scale=1.0, seed_each=True)
    assert np.abs(other[0] * 255 - expected.pixels[0]).max() <= 1
    with pytest.raises(ValueError, match="combined conditionings"):
        comfy.nodes["RedlineSampler"]().sample(painter, [*run("2")[0], *run("3")[0]], 1, 2, -1.0, 0, 0, 1)


def test_image_mask_and_batches(comfy, painter):
    sampler = comfy.nodes["RedlineTextToImage"]()
    common = dict(pipeline=painter, prompt="a blue square", negative_prompt="", seed=3, steps=3, guidance=-1.0, width=0, height=0)
    both, _ = sampler.generate(**common, batch_size=2)
    assert both.shape == (2, 128, 128, 3)
    mask = np.zeros((1, 128, 128), np.float32)
    mask[:, :64] = 1
    painted, _ = sampler.generate(**common, batch_size=1, image=both[:1], mask=mask, strength=1.0)
    assert painted.shape == (1, 128, 128, 3)
    assert np.abs(painted[0, 100:] - both[0, 100:]).mean() < np.abs(painted[0, :50] - both[0, :50]).mean() + 0.05
    with pytest.raises(ValueError, match="mask needs image"):
        sampler.generate(**common, batch_size=1, mask=mask)


def test_interrupt(comfy, painter):
    comfy.interrupt_at = 2
    sampler = comfy.nodes["RedlineTextToImage"]()
    with pytest.raises(Interrupted):
        sampler.generate(painter, "a red circle", "", 1, 50, -1.0, 0, 0, 1)
    assert comfy.progress == [1, 2]


@pytest.mark.parametrize("settings, expected", [
    (("none", 0.5), {"cache": "none"}),
    (("auto", 0.3), {"cache": "auto", "quality": 0.3}),
    (("fbcache", 0.3, 0.12), {"cache": "fbcache:threshold=0.12"}),
    (("auto", 0.3, 0.0, 5), {"cache": "auto", "steps_budget": 5}),
    (("taylorseer", 0.3), {"cache": "taylorseer"}),
])
def test_step_cache_settings(comfy, painter, settings, expected):
    options = comfy.nodes["RedlineStepCache"]().settings(*settings)[0]
    assert options == expected
    painter("a red circle", num_inference_steps=6, **options)


def test_every_rule_is_one_of_the_engine(comfy, painter):
    for rule in comfy.nodes["RedlineStepCache"].INPUT_TYPES()["required"]["rule"][0]:
        try:
            painter("a red circle", num_inference_steps=2, cache=rule, seed=1)
        except redline.InvalidArgument as error:
            # Rules of coefficients that this model has none of are known by their names.
            assert rule in str(error) and "unknown" not in str(error).lower(), error


# ---- A MODEL of ComfyUI: a transformer of two kinds of blocks in NumPy, with ComfyUI's replacement of blocks ----


class Block:
    def __init__(self, seed, width):
        self.weight = np.random.default_rng(seed).standard_normal((width, width)).astype(np.float32) * 0.3 / math.sqrt(width)
        self.calls = 0

    def __call__(self, x, vec):
        """In place, as the blocks of comfy/ldm/flux/layers.py do."""
        self.calls += 1
        x += np.tanh(x @ self.weight + vec)
        return x


class Transformer:
    """Calls replaced blocks as comfy/ldm/flux/model.py does: of the first kind with img and txt, of the second with both together."""

    WIDTH = 8

    def __init__(self, doubles, singles, control=None):
        self.double_blocks = [Block(i, self.WIDTH) for i in range(doubles)]
        self.single_blocks = [Block(100 + i, self.WIDTH) for i in range(singles)]
        self.control = control

    def __call__(self, img, txt, sigma, transformer_options):
        replace = transformer_options.get("patches_replace", {}).get("dit", {})
        vec = np.float32(math.sin(3 * sigma))
        img, txt = img.copy(), txt.copy()
        for i, block in enumerate(self.double_blocks):
            def both(args, block=block):
                return {"img": block(args["img"], args["vec"]), "txt": block(args["txt"], args["vec"])}

            args = {"img": img, "txt": txt, "vec": vec, "pe": None}
            out = replace[("double_block", i)](args, {"original_block": both}) if ("double_block", i) in replace else both(args)
            img, txt = out["img"], out["txt"]
            if self.control is not None:
                img += self.control
        img = np.concatenate([txt, img], axis=1)
        for i, block in enumerate(self.single_blocks):
            def one(args, block=block):
                return {"img": block(args["img"], args["vec"])}

            args = {"img": img, "vec": vec, "pe": None}
            out = replace[("single_block", i)](args, {"original_block": one}) if ("single_block", i) in replace else one(args)
            img = out["img"]
        return img[:, txt.shape[1]:]

    def calls(self):
        return [block.calls for block in (*self.double_blocks, *self.single_blocks)]


class CONST:
    """As comfy.model_sampling.CONST: flow matching."""


class FlowSampling(CONST):
    def percent_to_sigma(self, percent):
        return 999999999.9 if percent <= 0 else 0.0 if percent >= 1 else 1 - percent


class ModelPatcher:
    """As comfy.model_patcher.ModelPatcher: what patches of a MODEL use of it."""

    def __init__(self, network, options=None):
        self.objects = {"diffusion_model": network, "model_sampling": FlowSampling()}
        self.model_options = options or {"transformer_options": {}}

    def clone(self):
        clone = ModelPatcher(self.objects["diffusion_model"], {**self.model_options})
        clone.model_options["transformer_options"] = copy.deepcopy(self.model_options["transformer_options"])
        return clone

    def get_model_object(self, name):
        return self.objects[name]

    def set_model_unet_function_wrapper(self, wrapper):
        self.model_options["model_function_wrapper"] = wrapper

    def set_model_patch_replace(self, patch, name, block_name, number):
        replace = self.model_options["transformer_options"].setdefault("patches_replace", {}).setdefault(name, {})
        replace[(block_name, number)] = patch

    def sample(self, steps=16, conditions=((0,),), seed=0, fail_at=None, noise=None):
        """Euler steps as ComfyUI takes them; calls the network for each group of conditions, with the branches of a group together."""
        x = np.random.default_rng(seed).standard_normal((1, 6, 8)).astype(np.float32) if noise is None else noise
        sigmas = np.linspace(1, 0, steps + 1)
        network = self.objects["diffusion_model"]
        texts = {0: np.full((1, 3, 8), 0.2, np.float32), 1: np.full((1, 3, 8), -0.1, np.float32)}

        def apply_model(x, timestep, transformer_options):
            branches = transformer_options["cond_or_uncond"]
            txt = np.concatenate([texts[b] for b in branches])
            return x - network(x, txt, float(timestep[0]), transformer_options) * np.float32(timestep[0])

        for i, (now, after) in enumerate(zip(sigmas, sigmas[1:])):
            if i == fail_at:
                raise Interrupted
            denoised = {}
            for group in conditions:
                options = {**self.model_options["transformer_options"], "cond_or_uncond": list(group), "sample_sigmas": sigmas}
                arguments = {"input": np.concatenate([x] * len(group)), "timestep": np.full(len(group), now),
                             "c": {"transformer_options": options}, "cond_or_uncond": list(group)}
                wrapper = self.model_options.get("model_function_wrapper")
                out = (wrapper(apply_model, arguments) if wrapper else
                       apply_model(arguments["input"], arguments["timestep"], **arguments["c"]))
                denoised.update(zip(group, np.split(out, len(group))))
            guided = denoised[0] if 1 not in denoised else denoised[1] + 2 * (denoised[0] - denoised[1])
            x = (x + (x - guided) / now * (after - now)).astype(np.float32)
        return x


def settings(**changes):
    return {"method": "first block cache", "residual_diff_threshold": 0.12, "start": 0.0, "end": 1.0, "max_consecutive_cache_hits": -1,
            **changes}


def apply(comfy, model, **changes):
    return comfy.nodes["RedlineApplyCache"]().patch(model, **settings(**changes))[0]


def plain_first_block_cache(network, x, txts, sigmas, threshold):
    """The rule on one branch, written out: residuals of the blocks after the first, for image and text."""
    before = rest = None
    steps = []
    for now, after in zip(sigmas, sigmas[1:]):
        vec, txt = np.float32(math.sin(3 * now)), txts
        blocks = network.double_blocks
        img1, txt1 = blocks[0](x.copy(), vec), blocks[0](txt.copy(), vec)
        residual = img1 - x
        skip = rest is not None and np.abs(residual - before).mean() / np.abs(before).mean() < threshold
        steps.append(not skip)
        if skip:
            whole = np.concatenate([txt1, img1], axis=1) + rest
        else:
            img, text = img1.copy(), txt1.copy()
            for block in blocks[1:]:
                img, text = block(img, vec), block(text, vec)
            whole = np.concatenate([text, img], axis=1)
            for block in network.single_blocks:
                whole = block(whole, vec)
            before, rest = residual, whole - np.concatenate([txt1, img1], axis=1)
        output = whole[:, txt.shape[1]:]
        denoised = x - output * np.float32(now)
        x = (x + (x - denoised) / now * (after - now)).astype(np.float32)
    return x, steps


@pytest.mark.parametrize("blocks", [(3, 4), (2, 0), (1, 1), (0, 3), (4, 1)])
def test_first_block_cache_is_the_rule_written_out(comfy, blocks):
    if not blocks[0]:
        network = Transformer(*blocks)
        assert np.isfinite(apply(comfy, ModelPatcher(network)).sample()).all()
        assert network.calls()[0] == 16 and network.calls()[1] < 16
        return
    noise = np.random.default_rng(0).standard_normal((1, 6, 8)).astype(np.float32)
    expected, computed = plain_first_block_cache(Transformer(*blocks), noise, np.full((1, 3, 8), 0.2, np.float32),
                                                 np.linspace(1, 0, 17), 0.12)
    assert 2 <= sum(computed) <= 14
    network = Transformer(*blocks)
    model = ModelPatcher(network)
    got = apply(comfy, model).sample()
    np.testing.assert_allclose(got, expected, atol=1e-4)
    streams = 2 if len(network.double_blocks) else 1
    later = network.double_blocks[1:] + network.single_blocks
    assert network.double_blocks[0].calls == 16 * streams
    assert all(block.calls in (sum(computed), sum(computed) * 2) for block in later)
    assert "model_function_wrapper" not in model.model_options  # the MODEL that came in is as it was


@pytest.mark.parametrize("conditions", [((0, 1),), ((0,), (1,)), ((0,), (0, 1))])
@pytest.mark.parametrize("method", ["first block cache", "redline"])
def test_a_cache_that_never_skips_changes_nothing(comfy, method, conditions):
    exact = ModelPatcher(Transformer(2, 3)).sample(conditions=conditions)
    model = apply(comfy, ModelPatcher(Transformer(2, 3)), method=method, residual_diff_threshold=0.0, drift_threshold=0.0)
    np.testing.assert_array_equal(model.sample(conditions=conditions), exact)
    np.testing.assert_array_equal(model.sample(conditions=conditions), exact)  # the second run resets the state
    end = apply(comfy, ModelPatcher(Transformer(2, 3)), method=method, residual_diff_threshold=1.0, drift_threshold=9.0, end=0.0, start=0.0)
    np.testing.assert_array_equal(end.sample(conditions=conditions), exact)


def test_branches_have_states_of_their_own(comfy):
    """Branches are distinguished whether they are called together or one after the other; both are near the exact result."""
    exact = ModelPatcher(Transformer(2, 3)).sample(conditions=((0, 1),))
    for conditions in (((0, 1),), ((0,), (1,))):
        network = Transformer(2, 3)
        got = apply(comfy, ModelPatcher(network)).sample(conditions=conditions)
        assert network.single_blocks[0].calls < 16 * len(conditions)
        assert np.abs(got - exact).max() < 0.2 * np.abs(exact).max()


def test_limits_of_the_cache(comfy):
    network = Transformer(2, 3)
    apply(comfy, ModelPatcher(network), residual_diff_threshold=1.0, max_consecutive_cache_hits=1).sample()
    assert network.single_blocks[0].calls == 8  # every second step
    network = Transformer(2, 3)
    apply(comfy, ModelPatcher(network), residual_diff_threshold=1.0, start=0.5).sample()
    assert network.single_blocks[0].calls == 8  # the first half
    with pytest.raises(ValueError, match="start 0.5 is after end 0.2"):
        apply(comfy, ModelPatcher(network), start=0.5, end=0.2)
    with pytest.raises(ValueError, match="UNetModel has no transformer blocks"):
        apply(comfy, ModelPatcher(type("UNetModel", (), {})()))


def test_an_interrupted_run_leaves_nothing_behind(comfy):
    for method in ("first block cache", "redline"):
        model = apply(comfy, ModelPatcher(Transformer(2, 3)), method=method)
        expected = model.sample()
        with pytest.raises(Interrupted):
            model.sample(fail_at=5)
        np.testing.assert_array_equal(model.sample(), expected)


def test_other_wrappers_and_controls_go_on(comfy):
    seen = []

    def outer(apply_model, arguments):
        seen.append(float(arguments["timestep"][0]))
        return apply_model(arguments["input"], arguments["timestep"], **arguments["c"])

    model = ModelPatcher(Transformer(2, 3, control=np.float32(0.01)))
    model.set_model_unet_function_wrapper(outer)
    exact = model.sample()
    assert len(seen) == 16
    got = apply(comfy, model).sample()
    assert len(seen) == 32 and np.abs(got - exact).max() < 0.2 * np.abs(exact).max()


def test_the_rule_redline(comfy):
    """A budget computes so many steps, and more of them are nearer to the exact result; the threshold alone skips some."""
    exact = ModelPatcher(Transformer(2, 3)).sample(steps=24)
    errors = []
    for budget in (6, 12, 18, 24):
        network = Transformer(2, 3)
        got = apply(comfy, ModelPatcher(network), method="redline", steps_budget=budget).sample(steps=24)
        assert network.single_blocks[0].calls == budget
        errors.append(np.abs(got - exact).max())
    assert errors[3] == 0 and errors[2] < errors[0]
    results = []
    for threshold in (0.1, 0.01):
        network = Transformer(2, 3)
        got = apply(comfy, ModelPatcher(network), method="redline", drift_threshold=threshold).sample(steps=24)
        results.append((network.single_blocks[0].calls, float(np.abs(got - exact).max())))
    assert 2 < results[0][0] < results[1][0] < 24 and results[1][1] < results[0][1], results
    network = Transformer(2, 3)
    apply(comfy, ModelPatcher(network), method="redline", steps_budget=6).sample(steps=24, conditions=((0,), (1,)))
    assert network.single_blocks[0].calls == 2 * 6  # branches decide together


def test_the_mask_of_a_budget_is_that_of_the_engine(comfy, painter):
    from comfyui_redline.model_cache import power_mask

    for steps, budget in ((28, 10), (20, 7), (12, 12), (9, 1)):
        result = painter("a red circle", num_inference_steps=steps, cache=f"redline:budget={budget}", seed=1)
        assert {i for i, rows in enumerate(result.details["computed"]) if rows} == power_mask(steps, budget)


def test_the_package_of_the_pack(root, tmp_path):
    """Its pyproject.toml installs all its files."""
    pytest.importorskip("setuptools")
    source, built = tmp_path / "source", tmp_path / "built"
    shutil.copytree(root / "comfyui_redline", source, ignore=shutil.ignore_patterns("__pycache__"))
    build = f"import setuptools; setuptools.setup(script_args=['-q', 'build_py', '--build-lib', {str(built)!r}])"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    packed = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    files = {path.relative_to(root).as_posix() for pattern in ("*.py", "workflows/*.json")
             for path in (root / "comfyui_redline").glob(pattern)}
    assert packed == files and len(files) > 3

"""The node pack against a stand-in of what ComfyUI gives to nodes: its graph of inputs, progress, interrupt, tensors."""
import importlib.util
import json
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
    sys.modules.pop("comfyui_redline.nodes", None)


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


def workflow(root):
    return json.loads((root / "comfyui_redline/workflows/text_to_image.json").read_text())


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


def test_image_mask_and_batches(comfy, painter):
    sampler = comfy.nodes["RedlineSampler"]()
    common = dict(pipeline=painter, prompt="a blue square", negative_prompt="", seed=3, steps=3, guidance=-1.0, width=0, height=0)
    both, _ = sampler.sample(**common, batch_size=2)
    assert both.shape == (2, 128, 128, 3)
    mask = np.zeros((1, 128, 128), np.float32)
    mask[:, :64] = 1
    painted, _ = sampler.sample(**common, batch_size=1, image=both[:1], mask=mask, strength=1.0)
    assert painted.shape == (1, 128, 128, 3)
    assert np.abs(painted[0, 100:] - both[0, 100:]).mean() < np.abs(painted[0, :50] - both[0, :50]).mean() + 0.05
    with pytest.raises(ValueError, match="mask needs image"):
        sampler.sample(**common, batch_size=1, mask=mask)


def test_interrupt(comfy, painter):
    comfy.interrupt_at = 2
    sampler = comfy.nodes["RedlineSampler"]()
    with pytest.raises(Interrupted):
        sampler.sample(painter, "a red circle", "", 1, 50, -1.0, 0, 0, 1)
    assert comfy.progress == [1, 2]


@pytest.mark.parametrize("settings, expected", [
    (("none", 0.5), {"cache": "none"}),
    (("auto", 0.3), {"cache": "auto", "quality": 0.3}),
    (("fbcache", 0.3, 0.12), {"cache": "fbcache:threshold=0.12"}),
    (("auto", 0.3, 0.0, 5), {"cache": "auto", "steps_budget": 5}),
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

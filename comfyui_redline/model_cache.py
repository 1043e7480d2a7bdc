"""Step caches on a MODEL of ComfyUI, whose network stays in PyTorch.

The first block cache skips the blocks of a transformer, through ComfyUI's replacement of blocks ("dit"); Redline's own rule skips the
whole network, through the wrapper around it. Nothing of the model itself is changed, so that other patches keep working. Arrays are
only added, subtracted and averaged: the tests run on NumPy.
"""
import math

# Attributes of the networks that call replaced blocks: of the first kind ("double_block"), of the second ("single_block").
DOUBLE = ("double_blocks", "joint_blocks", "transformer_blocks", "blocks", "double_layers", "layers")
SINGLE = ("single_blocks", "single_transformer_blocks", "single_layers")


def copy_of(values):
    """ComfyUI's blocks add to their inputs in place."""
    return values.clone() if hasattr(values, "clone") else values.copy()


def mean_abs(values):
    return float(abs(values).mean())


class Calls:
    """Where a call of the network is in the sampler's loop.

    ComfyUI calls the network for the conditions of a step together or one after the other: `branch` tells them apart. A noise level
    above the last one, or another shape, is a new run.
    """

    def __init__(self):
        self.reset()

    def reset(self):
        self.sigma, self.shape, self.step, self.is_new_step = None, None, -1, True
        self.states, self._seen = {}, {}

    def begin(self, x, sigma, cond_or_uncond):
        """The state of this call's branch, a dict."""
        if self.shape != tuple(x.shape[1:]) or self.sigma is None or sigma > self.sigma:
            self.reset()
        self.is_new_step = sigma != self.sigma
        if self.is_new_step:
            self.step += 1
            self._seen = {}
        self.sigma, self.shape = sigma, tuple(x.shape[1:])
        kind = (tuple(cond_or_uncond), x.shape[0])
        number = self._seen[kind] = self._seen.get(kind, -1) + 1
        return self.states.setdefault((kind, number), {})


class Window:
    """When steps may be skipped: between two noise levels, and so many in a row."""

    def __init__(self, sigma_begin, sigma_end, max_consecutive):
        self.begin, self.end, self.max_consecutive = sigma_begin, sigma_end, max_consecutive

    def allows(self, sigma, state):
        return self.end <= sigma <= self.begin and (self.max_consecutive < 0 or state.get("hits", 0) < self.max_consecutive)


class FirstBlockCache:
    """FBCache (ParaAttention): while the first block's residual differs from that of the last computed step by less than a threshold
    (relative L1), the residuals of the other blocks are used again."""

    def __init__(self, threshold, window):
        self.threshold, self.window = threshold, window
        self.calls, self.state, self.sigma = Calls(), None, 0.0
        self.computed, self.skipped = 0, 0

    def wrap(self, call, x, timestep, cond_or_uncond):
        self.sigma = float(timestep[0])
        self.state = self.calls.begin(x, self.sigma, cond_or_uncond)
        try:
            return call()
        except BaseException:
            self.calls.reset()  # an interrupted step has half of its residuals
            raise
        finally:
            self.state = None

    def first(self, args, extra):
        """Block 0: decides."""
        state = self.state
        if state is None:
            return extra["original_block"](args)
        entry = copy_of(args["img"])
        out = extra["original_block"](args)
        residual = out["img"] - entry
        before = state.get("first")
        skips = (before is not None and "rest" in state and self.window.allows(self.sigma, state)
                 and mean_abs(residual - before) < self.threshold * mean_abs(before))
        state["skips"] = skips
        state["hits"] = state.get("hits", 0) + 1 if skips else 0
        if skips:
            self.skipped += 1
        else:
            self.computed += 1
            state["first"] = residual
            state.pop("rest", None)
        return out

    def other(self, names, is_last, is_entry, part):
        """A later block of a list: `names` are its streams ("img", "txt"), `part` its list."""

        def replaced(args, extra):
            state = self.state
            if state is None:
                return extra["original_block"](args)
            if state["skips"]:
                if not is_last:
                    return {name: args[name] for name in names if name in args}
                kept = state["rest"][part]
                return {name: args[name] + kept[name] if name in kept else args[name] for name in names if name in args}
            if is_entry:
                state.setdefault("entry", {})[part] = {
                    name: copy_of(args[name]) for name in names if args.get(name) is not None}
            out = extra["original_block"](args)
            if is_last:
                entry = state["entry"].pop(part)
                state.setdefault("rest", {})[part] = {
                    name: out[name] - value for name, value in entry.items()
                    if out.get(name) is not None and out[name].shape == value.shape}
            return out

        return replaced

    def replacements(self, network):
        """(list's name, number, replacement) of all blocks. ValueError: the network has no blocks that can be replaced."""
        doubles = next((len(getattr(network, name)) for name in DOUBLE if hasattr(network, name)), 0)
        singles = next((len(getattr(network, name)) for name in SINGLE if hasattr(network, name)), 0)
        if doubles + singles < 2:
            raise ValueError(f"{type(network).__name__} has no transformer blocks that ComfyUI can replace; use the method \"redline\", "
                             "which skips whole steps")
        found = []
        for name, count, streams in (("double_block", doubles, ("img", "txt")), ("single_block", singles, ("img",))):
            begin = 0 if found else 1  # the very first block decides
            if not found and count:
                found.append((name, 0, self.first))
            for i in range(begin, count):
                found.append((name, i, self.other(streams, i == count - 1, i == begin, name)))
        return found


def clock(sigma):
    """docs/step_cache.md: in it the output changes evenly. `sigma`: the share of noise, 0 .. 1."""
    return -math.log(max(1.05 - sigma, 1e-3))


def power_mask(steps, budget):
    """Which of the steps a budget computes: dense at first, the last one before the final step."""
    budget = min(max(budget, 1), steps)
    computed, before = set(), -1
    for k in range(budget):
        share = 0.0 if budget == 1 else k / (budget - 1)
        wanted = math.floor(max(steps - 2, 0) * share**1.8 + 0.5)
        before = min(max(wanted, before + 1), steps - (budget - k))
        computed.add(before)
    return computed


class RedlineCache:
    """Redline's rule (docs/step_cache.md), without its correction of forecast errors, which needs the sampler's step: the model's
    output is extrapolated linearly in u(sigma), damped by the previous forecast's error. A budget says which steps are computed; without
    one, steps are skipped while the expected error, summed over them, is below a threshold."""

    MIN_STEPS, MAX_CONSECUTIVE = 8, 8

    def __init__(self, threshold, budget, window, is_flow):
        self.threshold, self.budget, self.window, self.is_flow = threshold, budget, window, is_flow
        self.calls = Calls()
        self.computed, self.skipped = 0, 0
        self._decision = False  # of this step, which its other branches follow

    def wrap(self, call, x, timestep, cond_or_uncond, sample_sigmas=None):
        sigma = float(timestep[0])
        state = self.calls.begin(x, sigma, cond_or_uncond)
        share = sigma if self.is_flow else sigma / (1 + sigma)
        if self.calls.is_new_step:
            self._decision = self._skips(state, sigma, share, sample_sigmas)
        if self._decision and state.get("outputs") and sigma > 0:
            self.skipped += 1
            state["hits"] = state.get("hits", 0) + 1
            return x - self._forecast(state, share) * sigma
        try:
            denoised = call()
        except BaseException:
            self.calls.reset()
            raise
        self.computed += 1
        state["hits"], state["sum"] = 0, 0.0
        if sigma > 0:
            self._store(state, (x - denoised) / sigma, share)
        return denoised

    def _skips(self, state, sigma, share, sigmas):
        steps = None if sigmas is None else len(sigmas) - 1
        if not state.get("outputs") or not self.window.allows(sigma, state):
            return False
        if self.budget:
            if steps is None:
                raise ValueError("this version of ComfyUI does not pass the number of steps; set steps_budget to 0")
            return self.calls.step not in power_mask(steps, self.budget)
        if steps is not None and steps < self.MIN_STEPS or len(state["outputs"]) < 2 or state.get("hits", 0) >= self.MAX_CONSECUTIVE:
            return False
        after = 0.0 if sigmas is None or self.calls.step + 1 >= len(sigmas) else float(sigmas[self.calls.step + 1])
        after = after if self.is_flow else after / (1 + after)
        if sigmas is None:  # up to the last step
            after = max(share - abs(state["share"] - share), 0.0)
        error = state["rate"] * abs(clock(share) - clock(state["outputs"][0][0])) * abs(clock(after) - clock(share))
        state["sum"] = state.get("sum", 0.0) + error
        state["share"] = share
        return state["sum"] < self.threshold

    def _store(self, state, output, share):
        outputs = state.setdefault("outputs", [])
        state["share"] = share
        if outputs:
            (b_share, b), now = outputs[0], clock(share)
            moved = output - b
            norm = float((output * output).sum())
            state["rate"] = math.sqrt(float((moved * moved).sum()) / norm) / abs(now - clock(b_share)) if norm > 0 else 0.0
            if len(outputs) > 1:
                a_share, a = outputs[1]
                line = b - a
                ratio, length = (now - clock(b_share)) / (clock(b_share) - clock(a_share)), float((line * line).sum())
                trust = float((moved * line).sum()) / (ratio * length) if ratio and length else 0.0
                state["trust"] = min(max(trust, 0.0), 1.0) if math.isfinite(trust) else 0.0
        state["outputs"] = [(share, output), *outputs[:1]]

    @staticmethod
    def _forecast(state, share):
        (b_share, b), *older = state["outputs"]
        if not older:
            return b
        a_share, a = older[0]
        way = state.get("trust", 0.0) * (clock(share) - clock(b_share)) / (clock(b_share) - clock(a_share))
        return b + (b - a) * way


def patch(model, method, residual_diff_threshold, start, end, max_consecutive_cache_hits, drift_threshold, steps_budget):
    """A clone of the MODEL with the cache, and the cache."""
    model = model.clone()
    sampling = model.get_model_object("model_sampling")
    window = Window(float(sampling.percent_to_sigma(start)), float(sampling.percent_to_sigma(end)), max_consecutive_cache_hits)
    if method == "first block cache":
        cache = FirstBlockCache(residual_diff_threshold, window)
        for name, number, block in cache.replacements(model.get_model_object("diffusion_model")):
            model.set_model_patch_replace(block, "dit", name, number)
    else:
        is_flow = any(base.__name__ == "CONST" for base in type(sampling).__mro__)
        cache = RedlineCache(drift_threshold, steps_budget, window, is_flow)
    outer = model.model_options.get("model_function_wrapper")

    def wrapper(apply_model, arguments):
        x, timestep, c = arguments["input"], arguments["timestep"], arguments["c"]

        def call():
            return outer(apply_model, arguments) if outer is not None else apply_model(x, timestep, **c)

        branches = arguments.get("cond_or_uncond", [0])
        if method == "first block cache":
            return cache.wrap(call, x, timestep, branches)
        sigmas = c.get("transformer_options", {}).get("sample_sigmas")
        return cache.wrap(call, x, timestep, branches, sigmas)

    model.set_model_unet_function_wrapper(wrapper)
    return model, cache

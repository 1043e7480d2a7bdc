"""Writes solvers/: diffusers' schedulers on a fixed fake model.

cases.json  [{name, config, steps, image_tokens, strength, eta, even_sigmas, sigmas}]
io.npz      of each case NAME: NAME.timesteps, .sigmas (where the scheduler has them), .init (init_noise_sigma), .noised
            (add_noise of START with NOISE at the first step), .x [steps + 1, 16] (START, then after every step)

The fake model gives 0.25 s + v t / 1000 of the scaled input s: every term matters, and it rounds the
same way in C++. Random draws: one torch generator with seed 11. The pipelines' own part (mu, the choice of sigmas, where a run
with strength begins) is written as FluxPipeline, FluxImg2ImgPipeline and StableDiffusionImg2ImgPipeline do it.
"""
import json
import pathlib

import numpy as np
import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    LCMScheduler,
    PNDMScheduler,
    UniPCMultistepScheduler,
)

SHAPE = (2, 2, 2, 2)
SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
FLUX = {"base_image_seq_len": 256, "base_shift": 0.5, "max_image_seq_len": 4096, "max_shift": 1.15}


def case(name, cls, config=None, steps=8, image_tokens=0, strength=1.0, eta=0.0, even_sigmas=False, sigmas=None):
    return dict(name=name, cls=cls, config=config or {}, steps=steps, image_tokens=image_tokens, strength=strength,
                eta=eta, even_sigmas=even_sigmas, sigmas=sigmas)


FLOW, EULER, DDIM = FlowMatchEulerDiscreteScheduler, EulerDiscreteScheduler, DDIMScheduler
DPM, UNIPC = DPMSolverMultistepScheduler, UniPCMultistepScheduler
FLOW_DPM = {"use_flow_sigmas": True, "prediction_type": "flow_prediction", "flow_shift": 3.0}
FEW = 4  # trained betas: a schedule of four timesteps
CASES = [
    case("flow_static", FLOW, {"shift": 3.0}),
    case("flow_static_1", FLOW, {"shift": 3.0}, steps=1),
    case("flow_static_28", FLOW, {"shift": 3.0}, steps=28),
    case("flow_even", FLOW, {"shift": 2.0}, even_sigmas=True),
    case("flow_even_schnell", FLOW, {**FLUX, "shift": 1.0}, steps=4, even_sigmas=True),
    case("flow_dynamic", FLOW, {**FLUX, "use_dynamic_shifting": True}, image_tokens=1024, even_sigmas=True),
    case("flow_dynamic_large", FLOW, {**FLUX, "use_dynamic_shifting": True}, image_tokens=4096, even_sigmas=True,
         steps=28),
    case("flow_dynamic_linear", FLOW, {**FLUX, "use_dynamic_shifting": True, "time_shift_type": "linear"},
         image_tokens=600),
    case("flow_terminal", FLOW,
         {"use_dynamic_shifting": True, "base_shift": 0.95, "max_shift": 2.05, "base_image_seq_len": 1024,
                                 "shift_terminal": 0.1}, image_tokens=2048, even_sigmas=True),
    case("flow_karras", FLOW, {"shift": 3.0, "use_karras_sigmas": True}),
    case("flow_exponential", FLOW, {"shift": 3.0, "use_exponential_sigmas": True}),
    case("flow_beta", FLOW, {"shift": 3.0, "use_beta_sigmas": True}),
    case("flow_beta_20", FLOW, {"shift": 1.0, "use_beta_sigmas": True}, steps=20),
    case("flow_stochastic", FLOW, {"shift": 3.0, "stochastic_sampling": True}),
    case("flow_sigmas", FLOW, {"shift": 1.5}, steps=4, sigmas=[1.0, 0.9, 0.5, 0.125]),
    case("flow_img2img", FLOW, {"shift": 3.0}, steps=10, strength=0.63, even_sigmas=True),
    case("flow_train_500", FLOW, {"shift": 1.3, "num_train_timesteps": 500}),
    case("euler_sdxl", EULER, {**SD, "steps_offset": 1, "timestep_spacing": "leading", "clip_sample": False,
                               "set_alpha_to_one": False, "skip_prk_steps": True, "sample_max_value": 1.0}, steps=10),
    case("euler_default", EULER, {}),
    case("euler_1", EULER, SD, steps=1),
    case("euler_trailing_v_zero_snr", EULER, {**SD, "timestep_spacing": "trailing", "prediction_type": "v_prediction",
                                              "rescale_betas_zero_snr": True}),
    case("euler_trailing_31", EULER, {**SD, "timestep_spacing": "trailing"}, steps=31),
    case("euler_karras", EULER, {**SD, "use_karras_sigmas": True}),
    case("euler_karras_bounds", EULER, {**SD, "use_karras_sigmas": True, "sigma_min": 0.1, "sigma_max": 9.5}),
    case("euler_exponential", EULER, {**SD, "use_exponential_sigmas": True}),
    case("euler_beta", EULER, {**SD, "use_beta_sigmas": True}),
    case("euler_sample_end", EULER, {**SD, "prediction_type": "sample", "final_sigmas_type": "sigma_min"}),
    case("euler_cosine", EULER, {"beta_schedule": "squaredcos_cap_v2"}),
    case("euler_trained_betas", EULER, {"trained_betas": [0.1, 0.2, 0.3, 0.4], "num_train_timesteps": FEW}, steps=4),
    case("euler_img2img", EULER, {**SD, "timestep_spacing": "leading", "steps_offset": 1}, steps=10, strength=0.63),
    case("euler_ancestral", EulerAncestralDiscreteScheduler, {**SD, "timestep_spacing": "leading", "steps_offset": 1}),
    case("euler_ancestral_v", EulerAncestralDiscreteScheduler, {**SD, "prediction_type": "v_prediction",
                                                                "timestep_spacing": "trailing"}, steps=5),
    case("ddim_sd", DDIM,
         {**SD, "clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1, "skip_prk_steps": True},
         steps=10),
    case("ddim_default", DDIM, {}),
    case("ddim_eta", DDIM, {**SD, "clip_sample": False}, eta=0.75),
    case("ddim_clip", DDIM, {**SD, "clip_sample_range": 1.5}, eta=1.0),
    case("ddim_sample", DDIM,
         {**SD, "prediction_type": "sample", "clip_sample": False, "timestep_spacing": "linspace"}),
    case("ddim_v_zero_snr", DDIM, {**SD, "prediction_type": "v_prediction", "clip_sample": False,
                                   "rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}),
    case("ddim_img2img", DDIM, {**SD, "clip_sample": False, "steps_offset": 1}, steps=10, strength=0.55),
    case("dpm_sd", DPM, {**SD}),
    case("dpm_pixart", DPM, {"beta_start": 0.0001, "beta_end": 0.02, "beta_schedule": "linear", "solver_order": 2,
                             "algorithm_type": "dpmsolver++", "solver_type": "midpoint", "lower_order_final": True,
                             "euler_at_final": False, "lambda_min_clipped": -1.7e308, "variance_type": None}, steps=20),
    case("dpm_1", DPM, SD, steps=1),
    case("dpm_2", DPM, SD, steps=2),
    case("dpm_order_1", DPM, {**SD, "solver_order": 1}),
    case("dpm_heun", DPM, {**SD, "solver_type": "heun"}),
    case("dpm_karras", DPM, {**SD, "use_karras_sigmas": True}, steps=16),
    case("dpm_exponential", DPM, {**SD, "use_exponential_sigmas": True}),
    case("dpm_beta", DPM, {**SD, "use_beta_sigmas": True}),
    case("dpm_sde", DPM, {**SD, "algorithm_type": "sde-dpmsolver++"}),
    case("dpm_sde_heun_karras", DPM, {**SD, "algorithm_type": "sde-dpmsolver++", "solver_type": "heun",
                                      "use_karras_sigmas": True}),
    case("dpm_sigma_min", DPM, {**SD, "final_sigmas_type": "sigma_min"}, steps=16),
    case("dpm_sigma_min_euler", DPM, {**SD, "final_sigmas_type": "sigma_min", "euler_at_final": True}, steps=16),
    case("dpm_no_lower_order", DPM, {**SD, "lower_order_final": False, "final_sigmas_type": "sigma_min"}),
    case("dpm_leading", DPM, {**SD, "timestep_spacing": "leading", "steps_offset": 1}),
    case("dpm_trailing_v", DPM, {**SD, "timestep_spacing": "trailing", "prediction_type": "v_prediction"}),
    case("dpm_sample", DPM, {**SD, "prediction_type": "sample"}),
    case("dpm_cosine_clipped", DPM, {"beta_schedule": "squaredcos_cap_v2", "lambda_min_clipped": -5.1}),
    case("dpm_zero_snr", DPM, {**SD, "rescale_betas_zero_snr": True, "prediction_type": "v_prediction"}),
    case("dpm_flow", DPM, FLOW_DPM),
    case("dpm_flow_even_sde", DPM, {**FLOW_DPM, "algorithm_type": "sde-dpmsolver++"}, even_sigmas=True, steps=20),
    case("dpm_flow_dynamic", DPM, {**FLOW_DPM, "use_dynamic_shifting": True}, image_tokens=1024),
    case("dpm_img2img", DPM, SD, steps=10, strength=0.5),
    case("unipc_sd", UNIPC, SD),
    case("unipc_20", UNIPC, SD, steps=20),
    case("unipc_1", UNIPC, SD, steps=1),
    case("unipc_2", UNIPC, SD, steps=2),
    case("unipc_bh1", UNIPC, {**SD, "solver_type": "bh1", "final_sigmas_type": "sigma_min"}),
    case("unipc_order_1", UNIPC, {**SD, "solver_order": 1}),
    case("unipc_no_corrector", UNIPC, {**SD, "disable_corrector": [0, 2]}),
    case("unipc_karras", UNIPC, {**SD, "use_karras_sigmas": True}),
    case("unipc_exponential", UNIPC, {**SD, "use_exponential_sigmas": True, "final_sigmas_type": "sigma_min",
                                      "lower_order_final": False}),
    case("unipc_beta", UNIPC, {**SD, "use_beta_sigmas": True}),
    case("unipc_sigma_min", UNIPC, {**SD, "final_sigmas_type": "sigma_min"}),
    case("unipc_v_trailing", UNIPC, {**SD, "prediction_type": "v_prediction", "timestep_spacing": "trailing"}),
    case("unipc_sample_leading", UNIPC, {**SD, "prediction_type": "sample", "timestep_spacing": "leading"}),
    case("unipc_flow", UNIPC, FLOW_DPM),
    case("unipc_flow_bh1_even", UNIPC, {**FLOW_DPM, "solver_type": "bh1", "final_sigmas_type": "sigma_min"},
         even_sigmas=True, steps=20),
    case("unipc_flow_dynamic", UNIPC, {**FLOW_DPM, "use_dynamic_shifting": True}, image_tokens=1024),
    case("unipc_flow_terminal", UNIPC, {**FLOW_DPM, "shift_terminal": 0.1}),
    case("unipc_flow_karras", UNIPC, {**FLOW_DPM, "use_karras_sigmas": True}),
    case("unipc_img2img", UNIPC, SD, steps=10, strength=0.5),
    case("lcm", LCMScheduler, {}, steps=4),
    case("lcm_8", LCMScheduler, {"set_alpha_to_one": False, "timestep_scaling": 5.0, "original_inference_steps": 40}),
    case("lcm_v_clip", LCMScheduler,
         {"prediction_type": "v_prediction", "clip_sample": True, "clip_sample_range": 2.0}, steps=3),
    case("lcm_img2img", LCMScheduler, {}, steps=6, strength=0.5),
    case("pndm_sd15", PNDMScheduler, {**SD, "set_alpha_to_one": False, "skip_prk_steps": True, "steps_offset": 1,
                                      "clip_sample": False}, steps=10),
    case("pndm_1", PNDMScheduler, {**SD, "skip_prk_steps": True}, steps=1),
    case("pndm_v_linspace", PNDMScheduler, {**SD, "skip_prk_steps": True, "prediction_type": "v_prediction",
                                            "set_alpha_to_one": True, "timestep_spacing": "linspace"}),
    case("pndm_img2img", PNDMScheduler, {**SD, "skip_prk_steps": True, "steps_offset": 1}, steps=10, strength=0.55),
]


def mu_of(config, tokens):
    """calculate_shift of diffusers' FLUX pipeline."""
    base, most = config.get("base_image_seq_len", 256), config.get("max_image_seq_len", 4096)
    slope = (config.get("max_shift", 1.15) - config.get("base_shift", 0.5)) / (most - base)
    return tokens * slope + config.get("base_shift", 0.5) - slope * base


def run(c, start, noise, vector):
    scheduler = c["cls"].from_config(c["config"])  # passes over fields of other schedulers
    arguments = {}
    if c["config"].get("use_dynamic_shifting"):
        arguments["mu"] = mu_of(c["config"], c["image_tokens"])
    flow = c["cls"] is FLOW or c["config"].get("use_flow_sigmas", False)
    if c["sigmas"]:
        scheduler.set_timesteps(sigmas=c["sigmas"], **arguments)
    elif c["even_sigmas"] and c["cls"] is FLOW:
        scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / c["steps"], c["steps"]), **arguments)
    else:
        scheduler.set_timesteps(c["steps"], **arguments)
    steps, strength = c["steps"], c["strength"]
    if flow:
        skipped = int(max(steps - min(steps * strength, steps), 0))
    else:
        skipped = max(steps - min(int(steps * strength), steps), 0)
    if skipped and hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(skipped)
    timesteps = scheduler.timesteps[skipped:]
    init = 1 if flow else scheduler.init_noise_sigma
    out = {"timesteps": timesteps.numpy().astype(np.float32), "init": np.float32(init)}
    if hasattr(scheduler, "sigmas"):
        out["sigmas"] = scheduler.sigmas[skipped:].numpy()
    first = timesteps[:1]
    add = scheduler.scale_noise if c["cls"] is FLOW else scheduler.add_noise
    noised = add(start, first.repeat(2), noise) if c["cls"] is FLOW else add(start, noise, first.repeat(2))
    out["noised"] = noised.numpy().ravel()

    generator = torch.Generator("cpu").manual_seed(11)
    extra = {} if c["cls"] in (PNDMScheduler, UNIPC) else {"generator": generator}
    if c["cls"] is DDIM:
        extra["eta"] = c["eta"]
    x, xs = start.clone(), [start.numpy().ravel()]
    for t in timesteps:
        scaled = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
        output = 0.25 * scaled + vector * (t.to(torch.float32) * np.float32(0.001))
        x = scheduler.step(output, t, x, return_dict=False, **extra)[0]
        xs.append(x.numpy().ravel())
    out["x"] = np.stack(xs)
    assert np.isfinite(out["x"]).all(), c["name"]
    return out


def main():
    source = torch.Generator("cpu").manual_seed(5)
    start, noise, vector = (torch.randn(SHAPE, generator=source) for _ in range(3))
    arrays = {"start": start.numpy().ravel(), "noise": noise.numpy().ravel(), "vector": vector.numpy().ravel()}
    listed = []
    for c in CASES:
        for key, value in run(c, start, noise, vector).items():
            arrays[f"{c['name']}.{key}"] = value
        config = {"_class_name": c["cls"].__name__, **c["config"]}
        listed.append({**{k: v for k, v in c.items() if k != "cls"}, "config": config})
    folder = pathlib.Path(__file__).parent / "solvers"
    folder.mkdir(exist_ok=True)
    np.savez_compressed(folder / "io.npz", **arrays)
    lines = ",\n".join(json.dumps(entry) for entry in listed)
    (folder / "cases.json").write_text(f"[\n{lines}\n]\n")


main()

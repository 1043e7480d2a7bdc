"""Classes that are mixed into those of diffusers and transformers: their calls run in the engine."""
# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from redline._torch_lora import Engine, record_fusing, sync_adapters
from redline._torch_weights import floats
from redline.errors import Unsupported

LORA_METHODS = ("load_lora_adapter", "load_adapter", "add_adapter")


def refuse(module: Any, given: Mapping[str, Any]) -> None:
    """Refuses arguments for which the engine's network has no input."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise Unsupported(f"{type(module).__name__}: {name} is not supported in Redline; leave it out, or keep this network in "
                              "PyTorch")


def prefix_lengths(module: Any, name: str, mask: torch.Tensor | None, rows: int, tokens: int) -> torch.Tensor:
    """Returns the lengths of texts from a mask [rows, tokens], each row of which has ones and then zeros."""
    if mask is None:
        return torch.full((rows,), tokens, dtype=torch.int32)
    lengths = mask.to("cpu").ne(0).sum(dim=-1, dtype=torch.int32)
    if mask.shape != (rows, tokens) or not torch.equal(mask.to("cpu").ne(0), torch.arange(tokens) < lengths[:, None]):
        raise Unsupported(f"{type(module).__name__}: {name} is not a mask [rows, tokens] of ones and then zeros")
    return lengths


def recording(method: Any) -> Any:
    """Wraps a method that adds LoRA layers, so that fusing them is recorded."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        record_fusing(self, self._redline)
        return result

    return call


class Accelerated:
    """Mixed into the class of a module. `_redline` is its part in the engine."""

    _redline: Engine
    _redline_keep: tuple[str, ...] = ()

    @contextlib.contextmanager
    def _redline_scale(self, attention_kwargs: Mapping[str, Any] | None) -> Iterator[None]:
        """Applies the LoRA scale that a pipeline passes with a call, and the adapters that are active now."""
        kwargs = dict(attention_kwargs or {})
        scale = kwargs.pop("scale", 1.0)
        refuse(self, kwargs)
        if scale == 1.0 or not getattr(self, "peft_config", None):
            sync_adapters(self, self._redline)
            yield
            return
        from diffusers.utils.peft_utils import scale_lora_layers, unscale_lora_layers

        scale_lora_layers(self, scale)
        try:
            sync_adapters(self, self._redline)
            yield
        finally:
            unscale_lora_layers(self, scale)


class Denoiser(Accelerated):
    @contextlib.contextmanager
    def cache_context(self, name: str, **_: Any) -> Iterator[None]:
        before, self._redline.context = self._redline.context, name
        try:
            yield
        finally:
            self._redline.context = before

    def enable_cache(self, config: Any = None) -> None:
        """diffusers' call of this name: its first block cache is the engine's, the others skip blocks that are not in PyTorch now."""
        if type(config).__name__ != "FirstBlockCacheConfig":
            raise Unsupported(f"{type(config).__name__} skips blocks that run in Redline now; use FirstBlockCacheConfig, or "
                              "redline.diffusers.apply_cache(pipe, RULE)")
        self._redline.network.set_cache(f"fbcache:threshold={config.threshold:g}")

    def disable_cache(self) -> None:
        self._redline.network.set_cache(None)

    def _redline_run(self, latents: torch.Tensor, timestep: Any, inputs: Mapping[str, Any], attention_kwargs: Any,
                     rounded: Any) -> torch.Tensor:
        """The output [batch, channels, height, width], in the type of the latents. `rounded`: as place()."""
        times = torch.as_tensor(timestep).detach().to("cpu", torch.float32).reshape(-1)
        if not bool((times == times[0]).all()):
            raise Unsupported(f"{type(self).__name__}: rows of one call have different timesteps; Redline takes one")
        time = times[:1]
        rows = latents.shape[0]
        given = {"latents": floats(latents), "timestep": time.contiguous()}
        for name, value in inputs.items():
            if value is None:
                continue
            tensor = value if value.dtype == torch.int32 else floats(value)
            if tensor.shape[0] == 1 and rows > 1:
                tensor = tensor.expand(rows, *tensor.shape[1:]).contiguous()
            given[name] = tensor
        engine = self._redline
        with self._redline_scale(attention_kwargs):
            step = engine.place(float(time), rounded)
            out = engine.run(given, {"model_output": (rows, engine.info["latent_channels"], *latents.shape[2:])}, step)["model_output"]
        return out.to(latents.device, latents.dtype)

    def _redline_result(self, output_class: Any, sample: torch.Tensor, return_dict: bool) -> Any:
        return output_class(sample=sample) if return_dict else (sample,)


def unchanged(timestep: torch.Tensor) -> torch.Tensor:
    return timestep.to(torch.float32)


class _Unet(Denoiser):
    def forward(self, sample: torch.Tensor, timestep: Any, encoder_hidden_states: torch.Tensor, class_labels: Any = None,
                timestep_cond: Any = None, attention_mask: Any = None, cross_attention_kwargs: Any = None,
                added_cond_kwargs: Any = None, down_block_additional_residuals: Any = None,
                mid_block_additional_residual: Any = None, down_intrablock_additional_residuals: Any = None,
                encoder_attention_mask: Any = None, return_dict: bool = True) -> Any:
        from diffusers.models.unets.unet_2d_condition import UNet2DConditionOutput

        refuse(self, dict(class_labels=class_labels, timestep_cond=timestep_cond, attention_mask=attention_mask,
                           down_block_additional_residuals=down_block_additional_residuals,
                           mid_block_additional_residual=mid_block_additional_residual,
                           down_intrablock_additional_residuals=down_intrablock_additional_residuals,
                           encoder_attention_mask=encoder_attention_mask))
        added = dict(added_cond_kwargs or {})
        inputs = dict(text=encoder_hidden_states, pooled=added.pop("text_embeds", None), time_ids=added.pop("time_ids", None))
        refuse(self, added)
        out = self._redline_run(sample, timestep, inputs, cross_attention_kwargs, unchanged)
        return self._redline_result(UNet2DConditionOutput, out, return_dict)


class _Sd3(Denoiser):
    def forward(self, hidden_states: torch.Tensor, encoder_hidden_states: Any = None, pooled_projections: Any = None,
                timestep: Any = None, block_controlnet_hidden_states: Any = None, joint_attention_kwargs: Any = None,
                return_dict: bool = True, skip_layers: Any = None) -> Any:
        from diffusers.models.modeling_outputs import Transformer2DModelOutput

        refuse(self, dict(block_controlnet_hidden_states=block_controlnet_hidden_states, skip_layers=skip_layers))
        out = self._redline_run(hidden_states, timestep, dict(text=encoder_hidden_states, pooled=pooled_projections),
                                joint_attention_kwargs, unchanged)
        return self._redline_result(Transformer2DModelOutput, out, return_dict)


class _Pixart(Denoiser):
    def forward(self, hidden_states: torch.Tensor, encoder_hidden_states: Any = None, timestep: Any = None,
                added_cond_kwargs: Any = None, cross_attention_kwargs: Any = None, attention_mask: Any = None,
                encoder_attention_mask: Any = None, return_dict: bool = True) -> Any:
        from diffusers.models.modeling_outputs import Transformer2DModelOutput

        refuse(self, {**(added_cond_kwargs or {}), "attention_mask": attention_mask})
        lengths = prefix_lengths(self, "encoder_attention_mask", encoder_attention_mask, *encoder_hidden_states.shape[:2])
        out = self._redline_run(hidden_states, timestep, dict(text=encoder_hidden_states, key_lengths=lengths),
                                cross_attention_kwargs, unchanged)
        channels = self.config.out_channels  # type: ignore[attr-defined]
        if channels is not None and channels > out.shape[1]:
            # The learned variance, which the pipelines drop: the engine does not give it, and NaN shows where it is used.
            unknown = out.new_full((out.shape[0], channels - out.shape[1], *out.shape[2:]), math.nan)
            out = torch.cat([out, unknown], dim=1)
        return self._redline_result(Transformer2DModelOutput, out, return_dict)


class _Flux(Denoiser):
    def forward(self, hidden_states: torch.Tensor, encoder_hidden_states: Any = None, pooled_projections: Any = None,
                timestep: Any = None, img_ids: Any = None, txt_ids: Any = None, guidance: Any = None,
                joint_attention_kwargs: Any = None, controlnet_block_samples: Any = None,
                controlnet_single_block_samples: Any = None, return_dict: bool = True,
                controlnet_blocks_repeat: bool = False) -> Any:
        from diffusers.models.modeling_outputs import Transformer2DModelOutput

        refuse(self, dict(controlnet_block_samples=controlnet_block_samples,
                           controlnet_single_block_samples=controlnet_single_block_samples))
        places = (img_ids if img_ids.ndim == 2 else img_ids[0]).to("cpu", torch.float32)
        height, width = (int(places[:, axis].max()) + 1 for axis in (1, 2))
        rows, columns = torch.arange(height), torch.arange(width)
        grid = torch.stack([torch.zeros(height, width), rows[:, None].expand(height, width),
                            columns.expand(height, width)], dim=-1).reshape(-1, 3)
        if not torch.equal(places, grid) or (txt_ids is not None and bool(txt_ids.ne(0).any())):
            raise Unsupported(f"{type(self).__name__}: img_ids are not the rows and columns of one image, or txt_ids are not zeros; "
                              "Redline has FLUX.1 text to image and image to image")
        batch, _, packed = hidden_states.shape
        planes = hidden_states.reshape(batch, height, width, packed // 4, 2, 2).permute(0, 3, 1, 4, 2, 5)
        latents = planes.reshape(batch, packed // 4, 2 * height, 2 * width)
        # The pipeline passes thousandths, in the type of the latents.
        dtype = hidden_states.dtype

        def rounded(value: torch.Tensor) -> torch.Tensor:
            return (value.to(dtype) / 1000 * 1000).to(torch.float32)

        thousandths = torch.as_tensor(timestep).to(dtype) * 1000
        scale = None if guidance is None else floats(guidance.to(dtype) * 1000) / 1000
        if not self.config.guidance_embeds:  # type: ignore[attr-defined]
            scale = None
        out = self._redline_run(latents, thousandths, dict(text=encoder_hidden_states, pooled=pooled_projections, guidance=scale),
                                joint_attention_kwargs, rounded)
        tokens = out.reshape(batch, packed // 4, height, 2, width, 2).permute(0, 2, 4, 1, 3, 5)
        return self._redline_result(Transformer2DModelOutput, tokens.reshape(batch, height * width, packed), return_dict)


class _HiddenStates(tuple[Any, ...]):
    """The hidden states of all layers of CLIP, of which the engine has the last but one."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if found is None:
            raise Unsupported(f"hidden_states[{index}]: Redline has the states before CLIP's last layer, hidden_states[-2]; "
                              "clip_skip is not supported beyond it")
        return found


class _TextEncoder(Accelerated):
    def _redline_encode(self, input_ids: torch.Tensor, inputs: Mapping[str, torch.Tensor], wanted: Mapping[str, int]) -> Any:
        """`wanted`: the width of each output."""
        rows, tokens = input_ids.shape
        with self._redline_scale(None):
            return self._redline.run({"tokens": input_ids.detach().to("cpu", torch.int32).contiguous(), **inputs}, {
                name: (rows, width) if name == "pooled" else (rows, tokens, width) for name, width in wanted.items()})


class _Clip(_TextEncoder):
    # Pipelines apply it to earlier hidden states.
    _redline_keep = ("final_layer_norm.weight", "final_layer_norm.bias")

    def forward(self, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None,
                output_attentions: Any = None, output_hidden_states: Any = None, return_dict: Any = None, **kwargs: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutputWithPooling
        from transformers.models.clip.modeling_clip import CLIPTextModelOutput

        refuse(self, dict(position_ids=position_ids, output_attentions=output_attentions, **kwargs))
        if input_ids is None:
            raise Unsupported(f"{type(self).__name__}: Redline takes input_ids")
        if attention_mask is not None and not bool(attention_mask.ne(0).all()):
            raise Unsupported(f"{type(self).__name__}: attention_mask masks tokens; CLIP in Redline attends to all before a token")
        config, projects = self.config, hasattr(self, "text_projection")  # type: ignore[attr-defined]
        width = config.hidden_size
        wanted = {"hidden": width, "pooled": config.projection_dim if projects else width}
        if output_hidden_states:
            wanted["penultimate"] = width
        out = {name: value.to(input_ids.device, self.dtype)  # type: ignore[attr-defined]
               for name, value in self._redline_encode(input_ids, {}, wanted).items()}
        states = None
        if output_hidden_states:
            layers = config.num_hidden_layers + 1
            states = _HiddenStates(out["penultimate"] if i == layers - 2 else None for i in range(layers))
        if projects:
            result = CLIPTextModelOutput(text_embeds=out["pooled"], last_hidden_state=out["hidden"], hidden_states=states)
        else:
            result = BaseModelOutputWithPooling(last_hidden_state=out["hidden"], pooler_output=out["pooled"], hidden_states=states)
        return result.to_tuple() if return_dict is False else result


class _T5(_TextEncoder):
    def forward(self, input_ids: Any = None, attention_mask: Any = None, head_mask: Any = None, inputs_embeds: Any = None,
                output_attentions: Any = None, output_hidden_states: Any = None, return_dict: Any = None, **kwargs: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        refuse(self, dict(head_mask=head_mask, inputs_embeds=inputs_embeds, output_attentions=output_attentions,
                           output_hidden_states=output_hidden_states, **kwargs))
        lengths = prefix_lengths(self, "attention_mask", attention_mask, *input_ids.shape)
        width = self.config.d_model  # type: ignore[attr-defined]
        out = self._redline_encode(input_ids, {"key_lengths": lengths}, {"hidden": width})["hidden"]
        out = out.to(input_ids.device, self.dtype)  # type: ignore[attr-defined]
        return (out,) if return_dict is False else BaseModelOutput(last_hidden_state=out)


class _Autoencoder(Accelerated):
    def _redline_decode(self, z: torch.Tensor) -> torch.Tensor:
        scale = self._redline.info["scale"]
        shape = (z.shape[0], 3, scale * z.shape[2], scale * z.shape[3])
        return self._redline.run({"latents": floats(z)}, {"image": shape})["image"].to(z.device, z.dtype)

    def _redline_moments(self, x: torch.Tensor, per_channel: int) -> torch.Tensor:
        info = self._redline.info
        scale = info["scale"]
        shape = (x.shape[0], per_channel * info["latent_channels"], x.shape[2] // scale, x.shape[3] // scale)
        return self._redline.run({"image": floats(x)}, {"moments": shape})["moments"].to(x.device, x.dtype)


class _Kl(_Autoencoder):
    def encode(self, x: torch.Tensor, return_dict: bool = True) -> Any:
        from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
        from diffusers.models.modeling_outputs import AutoencoderKLOutput

        posterior = DiagonalGaussianDistribution(self._redline_moments(x, 2))
        return AutoencoderKLOutput(latent_dist=posterior) if return_dict else (posterior,)

    def decode(self, z: torch.Tensor, return_dict: bool = True, generator: Any = None) -> Any:
        from diffusers.models.autoencoders.vae import DecoderOutput

        decoded = self._redline_decode(z)
        return DecoderOutput(sample=decoded) if return_dict else (decoded,)


class _Tiny(_Autoencoder):
    def encode(self, x: torch.Tensor, return_dict: bool = True) -> Any:
        from diffusers.models.autoencoders.autoencoder_tiny import AutoencoderTinyOutput

        latents = self._redline_moments(x, 1)
        return AutoencoderTinyOutput(latents=latents) if return_dict else (latents,)

    def decode(self, x: torch.Tensor, generator: Any = None, return_dict: bool = True) -> Any:
        from diffusers.models.autoencoders.vae import DecoderOutput

        decoded = self._redline_decode(x)
        return DecoderOutput(sample=decoded) if return_dict else (decoded,)


MIXINS: dict[str, type[Accelerated]] = {
    "FluxTransformer2DModel": _Flux, "SD3Transformer2DModel": _Sd3, "PixArtTransformer2DModel": _Pixart,
    "Transformer2DModel": _Pixart, "UNet2DConditionModel": _Unet, "CLIPTextModel": _Clip, "CLIPTextModelWithProjection": _Clip,
    "T5EncoderModel": _T5, "AutoencoderKL": _Kl, "AutoencoderTiny": _Tiny,
}

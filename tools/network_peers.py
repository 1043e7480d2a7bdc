#!/usr/bin/env python3
"""Times one network with random weights in another engine, for tools/compare_networks: prints "ready", then reads lines and
prints the seconds of one run for each line.

  PYTHON tools/network_peers.py NETWORK SIDE DTYPE THREADS ENGINE [CACHE]

ENGINE: eager, compiled (torch.compile), torchao (W8A8, activations quantized as they come, compiled), openvino. Image networks
are diffusers' own classes, tensor programs (gemm to dilated-lstm) PyTorch's modules. CACHE keeps OpenVINO's converted models and compiled code.
"""
import os
import sys
import time

NETWORKS = ("flux-block", "flux-single-block", "flux-vae", "sd15-unet", "gemm", "b2b-gemm", "stacked-lstm", "dilated-lstm")
ENGINES = ("eager", "compiled", "torchao", "openvino")


def flux_block(torch, side, single):
    from diffusers.models.transformers import transformer_flux as flux
    kind = flux.FluxSingleTransformerBlock if single else flux.FluxTransformerBlock
    block, tokens = kind(dim=3072, num_attention_heads=24, attention_head_dim=128), (side // 16) ** 2
    inputs = [torch.randn(1, tokens, 3072), torch.randn(1, 512, 3072), torch.randn(1, 3072),
              torch.randn(tokens + 512, 128), torch.randn(tokens + 512, 128)]

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = block

        def forward(self, x, text, temb, cos, sin):
            return self.block(hidden_states=x, encoder_hidden_states=text, temb=temb, image_rotary_emb=(cos, sin))
    return Block(), inputs


def vae(torch, side):
    import diffusers
    whole = diffusers.AutoencoderKL(block_out_channels=[128, 256, 512, 512], layers_per_block=2, latent_channels=16,
                                    norm_num_groups=32, down_block_types=["DownEncoderBlock2D"] * 4,
                                    up_block_types=["UpDecoderBlock2D"] * 4, use_quant_conv=False, use_post_quant_conv=False)
    return whole.decoder, [torch.randn(1, 16, side // 8, side // 8)]


def unet(torch, side):
    import diffusers
    inner = diffusers.UNet2DConditionModel(cross_attention_dim=768)

    class Unet(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.unet = inner

        def forward(self, x, step, text):
            return self.unet(x, step, encoder_hidden_states=text, return_dict=False)[0]
    return Unet(), [torch.randn(2, 4, side // 8, side // 8), torch.tensor([500.0]), torch.randn(2, 77, 768)]


def products(torch, rows, sizes):
    layers = [torch.nn.Linear(k, n, bias=False) for k, n in zip(sizes, sizes[1:])]
    return torch.nn.Sequential(*layers), [torch.randn(rows, sizes[0])]


def dilated_lstm(torch, columns, dilations):
    """A layer of dilation d is an LSTM over d sequences in place of each one, every d-th token each."""
    class Dilated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.LSTM(columns, columns) for _ in dilations)

        def forward(self, x):
            tokens, batch, _ = x.shape
            for layer, dilation in zip(self.layers, dilations):
                x = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, -tokens % dilation))
                x = layer(x.reshape(-1, batch * dilation, columns))[0].reshape(-1, batch, columns)[:tokens]
            return x
    return Dilated(), [torch.randn(50, 256, columns)]


def tensor_program(torch, name, columns):
    if name == "gemm":
        return products(torch, 2048, [columns, columns])
    if name == "b2b-gemm":
        return products(torch, 8192, [64, columns, 64])
    if name == "dilated-lstm":
        return dilated_lstm(torch, columns, [1, 2, 4, 8, 16, 32])
    return torch.nn.LSTM(columns, columns, num_layers=32), [torch.randn(64, 256, columns)]


def make(torch, name, side):
    torch.manual_seed(0)
    if name in ("gemm", "b2b-gemm", "stacked-lstm", "dilated-lstm"):
        return tensor_program(torch, name, side)
    if name == "flux-vae":
        return vae(torch, side)
    if name == "sd15-unet":
        return unet(torch, side)
    return flux_block(torch, side, name == "flux-single-block")


def in_openvino(torch, name, side, dtype, threads, cache, cpus):
    """The converted model is kept: converting takes longer than measuring. PyTorch's OpenMP has bound this thread to one
    CPU by now, and OpenVINO would use no other: its threads take the mask of the one that compiles."""
    os.sched_setaffinity(0, cpus)
    import numpy as np
    import openvino as ov
    path = f"{cache}/{name}-{side}.xml"
    module, inputs = make(torch, name, side)
    if not os.path.exists(path):
        with torch.no_grad():
            model = ov.convert_model(module.eval(), example_input=tuple(inputs), input=[tuple(x.shape) for x in inputs])
        ov.save_model(model, path, compress_to_fp16=True)
    os.sched_setaffinity(0, cpus)
    compiled = ov.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
                                                     "INFERENCE_PRECISION_HINT": dtype})
    request = compiled.create_infer_request()
    for port, value in zip(compiled.inputs, inputs):
        request.set_tensor(port, ov.Tensor(np.ascontiguousarray(value.numpy())))
    return request.infer


def in_torch(torch, name, side, dtype, engine):
    module, inputs = make(torch, name, side)
    kind = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    module, inputs = module.to(kind).eval().requires_grad_(False), [x.to(kind) for x in inputs]
    if engine == "torchao":
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
        quantize_(module, Int8DynamicActivationInt8WeightConfig(),
                  filter_fn=lambda layer, _: isinstance(layer, torch.nn.Linear) and min(layer.weight.shape) >= 512)
    if engine != "eager":
        import torch._inductor.config as config
        config.freezing = True
        if name in ("flux-vae", "sd15-unet"):  # oneDNN's convolutions want it
            module = module.to(memory_format=torch.channels_last)
            inputs[0] = inputs[0].to(memory_format=torch.channels_last)
        module = torch.compile(module)

    def run():
        with torch.no_grad():
            module(*inputs)
    return run


def main():
    if len(sys.argv) not in (6, 7) or sys.argv[1] not in NETWORKS or sys.argv[5] not in ENGINES:
        print(__doc__, file=sys.stderr)
        return 2
    name, side, dtype, threads, engine = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
    cache = sys.argv[6] if len(sys.argv) == 7 else "."
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{cache}/inductor")
    cpus = os.sched_getaffinity(0)
    import torch
    torch.set_num_threads(threads)
    if engine == "openvino":
        run = in_openvino(torch, name, side, dtype, threads, cache, cpus)
    else:
        run = in_torch(torch, name, side, dtype, engine)
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        run()
        print(time.perf_counter() - begin, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

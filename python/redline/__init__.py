"""Redline: inference of language models and diffusion models on the CPU.

    import redline
    model = redline.Model("redline-tales")
    print(model.generate("Once upon a time", max_tokens=100).text)

    painter = redline.ImagePipeline("redline-shapes")
    painter("a large red circle").images[0].save("circle.png")

Importing loads neither NumPy nor PyTorch. docs/python.md describes the package.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redline.errors import (Cancelled, ClosedError, Error, FileError, InternalError, InvalidArgument, NotFound, OutOfMemory,
                            Unsupported)

if TYPE_CHECKING:
    from redline._generation import AsyncStream, Stream
    from redline._bench import BenchResult, bench
    from redline._devices import Device, devices
    from redline.embedding import EmbeddingModel, RankedDocument
    from redline.image import (Image, ImagePipeline, ImageResult, PromptEmbeds, StepCacheRule, StepProgress,
                               step_cache_rules)
    from redline.model import Model
    from redline.prompt import EmbeddingRows, Prompt
    from redline.results import ChatChunk, ChatCompletion, Chunk, Completion, Timings, TokenLogprob, ToolCall, Usage
    from redline.runtime import Runtime
    from redline.sampling import SamplingOptions
    from redline.sequence import TokenSequence
    from redline.tokenizer import Tokenizer

    __version__: str

_HOMES = {
    "AsyncStream": "_generation", "Stream": "_generation", "BenchResult": "_bench", "bench": "_bench", "Device": "_devices",
    "devices": "_devices", "EmbeddingModel": "embedding", "RankedDocument": "embedding", "Image": "image",
    "ImagePipeline": "image", "ImageResult": "image", "PromptEmbeds": "image", "StepProgress": "image", "StepCacheRule": "image",
    "step_cache_rules": "image", "Model": "model", "EmbeddingRows": "prompt", "Prompt": "prompt",
    "ChatChunk": "results", "ChatCompletion": "results", "Chunk": "results", "Completion": "results", "Timings": "results", "TokenLogprob": "results",
    "ToolCall": "results", "Usage": "results", "Runtime": "runtime", "SamplingOptions": "sampling",
    "TokenSequence": "sequence", "Tokenizer": "tokenizer",
}

__all__ = [
    "AsyncStream", "BenchResult", "Cancelled", "ChatChunk", "ChatCompletion", "Chunk", "ClosedError", "Completion", "Device",
    "EmbeddingModel", "EmbeddingRows", "Error", "FileError", "Image", "ImagePipeline", "ImageResult", "InternalError", "InvalidArgument", "Model",
    "NotFound", "OutOfMemory", "Prompt", "PromptEmbeds", "RankedDocument", "Runtime", "SamplingOptions", "StepCacheRule", "StepProgress", "Stream",
    "Timings", "TokenLogprob", "TokenSequence", "Tokenizer", "ToolCall", "Unsupported", "Usage", "bench", "devices",
    "step_cache_rules",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        from redline import _redline

        return _redline.version()
    if name == "_redline":  # the extension module, which this loads
        from redline._native import load

        return load()
    if name not in _HOMES:
        raise AttributeError(f"module 'redline' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"redline.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

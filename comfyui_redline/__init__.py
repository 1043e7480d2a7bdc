"""Redline in ComfyUI: load a diffusers pipeline, choose a step cache, generate images on the CPU.

Install: copy or link this folder into ComfyUI/custom_nodes, and the package redline into ComfyUI's Python (docs/python.md).
"""
from .nodes import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS

__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS"]

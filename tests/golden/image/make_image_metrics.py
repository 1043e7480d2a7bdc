"""Writes image_metrics/io.npz: pairs of images with their PSNR (numpy) and SSIM (scikit-image), for
tests/lab/images/image_metrics_test.cc. Needs scikit-image.
"""
import pathlib

import numpy as np
from skimage.metrics import structural_similarity


def main():
    rng = np.random.default_rng(8)
    arrays = {}
    y, x = np.mgrid[0:24, 0:31]
    waves = 127 + 90 * np.stack([np.sin(x / 3 + c) * np.cos(y / (4 + c)) for c in range(3)], axis=-1)
    flat = np.full((11, 11, 3), 130.0)
    pairs = {
        "noisy": (waves, waves + rng.normal(0, 12, waves.shape)),
        "shifted": (waves, np.roll(waves, 2, axis=1)),
        "one_off": (flat, flat + (np.arange(363).reshape(11, 11, 3) == 180)),
        "far": (rng.uniform(0, 255, (13, 40, 3)), rng.uniform(0, 255, (13, 40, 3))),
        "same": (waves, waves),
    }
    for name, pair in pairs.items():
        a, b = (np.clip(np.rint(p), 0, 255).astype(np.uint8) for p in pair)
        mse = np.mean((a / 255.0 - b / 255.0) ** 2)
        # gaussian_weights with sigma 1.5 and truncate 3.5 is a window of 11; the mean is of `full` without its
        # border of 5.
        _, full = structural_similarity(a / 255.0, b / 255.0, data_range=1.0, channel_axis=-1, gaussian_weights=True,
                                        sigma=1.5, use_sample_covariance=False, full=True)
        arrays[f"{name}.a"], arrays[f"{name}.b"] = a.astype(np.int32), b.astype(np.int32)
        arrays[f"{name}.psnr"] = np.array(100.0 if mse < 1e-10 else 20 * np.log10(1 / np.sqrt(mse)))
        arrays[f"{name}.ssim"] = np.array(full[5:-5, 5:-5].mean())
    folder = pathlib.Path(__file__).parent / "image_metrics"
    folder.mkdir(exist_ok=True)
    np.savez_compressed(folder / "io.npz", **arrays)


main()

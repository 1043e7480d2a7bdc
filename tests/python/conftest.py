"""The package from the source tree, over the build that REDLINE_LIBRARY names, or build/release or build/dev."""
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
# The build beside the binary under test, where one is named.
if "REDLINE_LIBRARY" not in os.environ and "REDLINE_BINARY" in os.environ:
    beside = pathlib.Path(os.environ["REDLINE_BINARY"]).resolve().parent / "libredline.so"
    if beside.is_file():
        os.environ["REDLINE_LIBRARY"] = str(beside)
# Subprocesses of the tests import the same package.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))


def pytest_collection_modifyitems(items):
    from redline._native import candidates

    if any(path.is_file() for path in candidates()):
        return
    for item in items:
        if "tests/python" in str(item.path) and "without_library" not in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no extension module: build it (target redline_python)"))


def pytest_configure(config):
    config.addinivalue_line("markers", "without_library: the test does not load the extension module")


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def model():
    import redline

    return redline.Model(ROOT / "assets/redline-tales", dtype="f32", threads=2)


@pytest.fixture(scope="session")
def painter():
    import redline

    if not (ROOT / "assets/redline-shapes/transformer/diffusion_pytorch_model.safetensors").exists():
        pytest.skip("the weights of assets/redline-shapes are not unpacked: build the program")
    return redline.ImagePipeline(ROOT / "assets/redline-shapes", threads=2)

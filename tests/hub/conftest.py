import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from fake_hub import Hub  # noqa: E402


@pytest.fixture
def hub():
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture
def environment(hub, tmp_path):
    """Of a process that knows no other Hub, cache or token."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "TRANSFORMERS_")) and "proxy" not in k.lower()}
    return kept | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "HOME": str(tmp_path),
                   "XDG_CACHE_HOME": str(tmp_path / "cache"), "HF_HUB_DOWNLOAD_TIMEOUT": "2"}

"""What `redline image` writes into its files, read by Pillow; and files of A1111's web UI and ComfyUI, which Pillow writes as
they do, read by --from."""
import json
import struct
import subprocess

import pytest
from redline_binary import binary

PIL = pytest.importorskip("PIL.Image")
from PIL import PngImagePlugin  # noqa: E402

PROMPT = "une fenêtre à l'été, 猫 🦊"
NEGATIVE = "flou, Größe"
EXIF, USER_COMMENT, DESCRIPTION, MODEL, MAKE = 0x8769, 0x9286, 0x010E, 0x0110, 0x010F
PARAMETERS = "a red house, café\nNegative prompt: mauvais\nSteps: 4, Sampler: Euler, CFG scale: 3.5, Seed: 77, Size: 64x64, Model: x"
GRAPH = {
    "3": {"class_type": "KSampler", "inputs": {"seed": 77, "steps": 4, "cfg": 3.5, "sampler_name": "euler", "scheduler": "simple", "denoise": 1.0,
                                               "positive": ["6", 0], "negative": ["7", 0], "model": ["4", 0], "latent_image": ["5", 0]}},
    "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a red house, café", "clip": ["4", 1]}},
    "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "mauvais", "clip": ["4", 1]}},
}


@pytest.fixture(scope="module")
def shapes(root, painter):
    return str(root / "assets/redline-shapes")


def draw(*arguments):
    run = subprocess.run([binary(), "image", *map(str, arguments), "--json"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def comment_of(image):
    """The parameters as A1111's web UI reads them of a JPEG or WebP: piexif's UserComment.load."""
    comment = image.getexif().get_ifd(EXIF)[USER_COMMENT]
    assert comment.startswith(b"UNICODE\0")
    return comment[8:].decode("utf-16-be")


@pytest.mark.parametrize("ending", ["png", "webp", "jpg"])
def test_pillow_reads_what_is_written(shapes, tmp_path, ending):
    file = tmp_path / f"a.{ending}"
    draw(shapes, PROMPT, "--negative", NEGATIVE, "--steps", 1, "--seed", 9, "--size", "64x64", "-o", file)
    image = PIL.open(file)
    image.load()
    if ending == "png":
        parameters, own = image.text["parameters"], image.text["redline"]
        # Text beyond Latin-1 may only stand in iTXt; what is ASCII stays readable for programs that know tEXt alone.
        kinds = {key: isinstance(value, PngImagePlugin.iTXt) for key, value in image.text.items()}
        assert kinds["parameters"] and all(kinds[key] or image.text[key].isascii() for key in kinds)
        graph = json.loads(image.text["prompt"])
        texts = [node["inputs"]["text"] for node in graph.values() if node["class_type"].startswith("CLIPTextEncode")]
        assert PROMPT in texts and NEGATIVE in texts
    else:
        parameters, own = comment_of(image), image.getexif()[DESCRIPTION]
    first, second, settings = parameters.split("\n")
    assert (first, second) == (PROMPT, f"Negative prompt: {NEGATIVE}")
    assert settings.startswith("Steps: 1, ") and ", Seed: 9, " in settings and "Size: 64x64" in settings
    if isinstance(own, bytes):
        own = own.decode()
    # Pillow takes text in EXIF for Latin-1.
    own = json.loads(own if ending == "png" or own.isascii() else own.encode("latin-1").decode())
    assert own["seed"] == 9


def exif_with(**fields):
    exif = PIL.Exif()
    if "comment" in fields:
        exif.get_ifd(EXIF)[USER_COMMENT] = b"UNICODE\0" + fields["comment"].encode("utf-16-be")
    if "model" in fields:
        exif[MODEL], exif[MAKE] = fields["model"], "workflow:{}"
    return exif


def write(file, form):
    image, info = PIL.new("RGB", (64, 64), (9, 90, 200)), PngImagePlugin.PngInfo()
    match form:
        case "a1111 Latin-1":  # Pillow's add_text chooses tEXt where Latin-1 suffices
            info.add_text("parameters", PARAMETERS)
        case "a1111 zTXt":
            info.add_text("parameters", PARAMETERS, zip=True)
        case "a1111 iTXt":
            info.add_itxt("parameters", PARAMETERS)
        case "a1111 JPEG" | "a1111 WebP":
            return image.save(file, form.split()[1], exif=exif_with(comment=PARAMETERS))
        case "ComfyUI PNG":
            info.add_text("prompt", json.dumps(GRAPH))
            info.add_text("workflow", "{}")
        case "ComfyUI PNG, UTF-8":
            info.add_text("prompt", json.dumps(GRAPH, ensure_ascii=False))
        case "ComfyUI WebP":
            return image.save(file, "WebP", exif=exif_with(model="prompt:" + json.dumps(GRAPH)))
    return image.save(file, "PNG", pnginfo=info)


@pytest.mark.parametrize("form", ["a1111 Latin-1", "a1111 zTXt", "a1111 iTXt", "a1111 JPEG", "a1111 WebP", "ComfyUI PNG", "ComfyUI PNG, UTF-8",
                                  "ComfyUI WebP"])
def test_files_of_other_programs_are_repeated(shapes, tmp_path, form):
    write(tmp_path / "given", form)
    repeated, typed = tmp_path / "repeated.png", tmp_path / "typed.png"
    draw(shapes, "--from", tmp_path / "given", "-o", repeated)
    settings = PIL.open(repeated).text["parameters"].split("\n")
    assert settings[:2] == ["a red house, café", "Negative prompt: mauvais"]
    assert "Steps: 4, " in settings[2] and "Seed: 77, " in settings[2] and "Size: 64x64" in settings[2]
    draw(shapes, "a red house, café", "--negative", "mauvais", "--steps", 4, "--seed", 77, "--size", "64x64", "--cfg-scale", 3.5, "--solver",
         "euler", "-o", typed)
    assert PIL.open(repeated).tobytes() == PIL.open(typed).tobytes()


def test_exif_of_either_byte_order_is_read(shapes, tmp_path):
    """A UserComment in UTF-16 of the machine's order, as some programs write it whatever the TIFF says."""
    comment = b"UNICODE\0" + PARAMETERS.encode("utf-16-le")
    tiff = b"II*\0" + struct.pack("<IHHHIIIHHHIII", 8, 1, EXIF, 4, 1, 26, 0, 1, USER_COMMENT, 7, len(comment), 44, 0) + comment
    PIL.new("RGB", (64, 64)).save(tmp_path / "a.jpg", exif=b"Exif\0\0" + tiff)
    draw(shapes, "--from", tmp_path / "a.jpg", "-o", tmp_path / "b.png")
    assert PIL.open(tmp_path / "b.png").text["parameters"].startswith("a red house, café\nNegative prompt: mauvais\n")

"""Images over HTTP: OpenAI's API with its own client, and predictions with events, cancellation and webhooks."""
import base64
import hashlib
import hmac
import http.server
import io
import json
import threading
import time

import httpx
import numpy as np
import openai
import pytest
from PIL import Image

from conftest import ROOT

SHAPES = ROOT / "assets/redline-shapes"
PROMPT = "a large red circle on a blue background"
SECRET = "whsec_" + base64.b64encode(b"a secret of some length").decode()


@pytest.fixture(scope="module")
def painter(start):
    with start("--threads", "2", "--max-queue", "3", "--webhook-secret", SECRET, models=(str(SHAPES),)) as server:
        yield server


@pytest.fixture(scope="module")
def client(painter):
    return openai.OpenAI(base_url=painter.url + "/v1", api_key="none", max_retries=0)


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=np.int32)


def psnr(a, b):
    return 10 * np.log10(255**2 / max(np.mean((a - b) ** 2), 1e-9))


@pytest.fixture(scope="module")
def reference(client):
    """The image of PROMPT with seed 5 in 4 steps."""
    answer = client.images.generate(prompt=PROMPT, extra_body={"seed": 5, "steps": 4})
    return pixels(base64.b64decode(answer.data[0].b64_json))


def test_models_say_what_they_draw(painter):
    model = painter.get("/v1/models").json()["data"][0]
    assert model["capabilities"] == ["image"]
    image = model["meta"]["image"]
    assert image["width"] % image["multiple"] == 0 and image["steps"] >= 1


def test_openai_client_generates(client, reference):
    assert reference.shape == (128, 128, 3)
    red = (reference[..., 0] > 150) & (reference[..., 2] < 120)
    blue = (reference[..., 2] > 120) & (reference[..., 0] < 120)
    assert red.mean() > 0.1 and blue.mean() > 0.2
    both = client.images.generate(prompt=PROMPT, n=2, size="128x128", output_format="webp", extra_body={"seed": 4, "steps": 4})
    assert [d.model_extra["seed"] for d in both.data] == [4, 5]
    # WebP is lossy; the second image is that of seed 5.
    assert psnr(pixels(base64.b64decode(both.data[1].b64_json)), reference) > 25


def test_openai_client_by_url(painter, client, reference):
    answer = client.images.generate(prompt=PROMPT, response_format="url", extra_body={"seed": 5, "steps": 4})
    file = httpx.get(answer.data[0].url)
    assert file.headers["content-type"] == "image/png"
    assert np.array_equal(pixels(file.content), reference)


def test_openai_client_streams_previews(client, reference):
    events = list(client.images.generate(prompt=PROMPT, stream=True, partial_images=2, extra_body={"seed": 5, "steps": 4}))
    kinds = [e.type for e in events]
    assert kinds[-1] == "image_generation.completed" and kinds.count("image_generation.partial_image") == len(kinds) - 1 >= 1
    assert np.array_equal(pixels(base64.b64decode(events[-1].b64_json)), reference)
    preview = pixels(base64.b64decode(events[0].b64_json))
    assert preview.shape == (128, 128, 3)


def test_openai_client_edits_inside_the_mask_only(client, reference):
    mask = np.zeros((128, 128, 3), np.uint8)
    mask[:, 64:] = 255
    files = []
    for array in (reference.astype(np.uint8), mask):
        file = io.BytesIO()
        Image.fromarray(array).save(file, "PNG")
        files.append(file.getvalue())
    answer = client.images.edit(image=("a.png", files[0]), mask=("m.png", files[1]), prompt="a green square",
                                extra_body={"seed": 1, "steps": 4, "strength": 1})
    edited = pixels(base64.b64decode(answer.data[0].b64_json))
    assert np.array_equal(edited[:, :64], reference[:, :64])
    assert not np.array_equal(edited[:, 64:], reference[:, 64:])
    # The same as JSON.
    urls = ["data:image/png;base64," + base64.b64encode(file).decode() for file in files]
    again = client.post("/images/edits", cast_to=httpx.Response, body={
        "prompt": "a green square", "image": urls[0], "mask": urls[1], "seed": 1, "steps": 4, "strength": 1})
    assert np.array_equal(pixels(base64.b64decode(again.json()["data"][0]["b64_json"])), edited)


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def with_hole(rgb):
    """RGBA whose middle, 64x64 of 128x128, is transparent."""
    alpha = np.full((128, 128, 1), 255, np.uint8)
    alpha[32:96, 32:96] = 0
    return np.concatenate([rgb.astype(np.uint8), alpha], axis=2)


HOLE = np.zeros((128, 128), bool)
HOLE[32:96, 32:96] = True
FILLED = {name: np.full((128, 128, 3), level, np.uint8) for name, level in (("black", 0), ("white", 255))}


@pytest.mark.parametrize("form", ["image", "black", "white", "opaque"])
def test_openai_masks_are_regenerated_where_they_are_transparent(client, reference, form):
    """The image with a hole and no mask, masks with a hole of either colour, and an opaque mask, which is white there."""
    image_array = reference.astype(np.uint8)
    files = {"image": with_hole(image_array) if form == "image" else image_array}
    if form == "opaque":
        files["mask"] = np.repeat(HOLE[:, :, None], 3, axis=2).astype(np.uint8) * 255
    elif form != "image":
        files["mask"] = with_hole(FILLED[form])
    answer = client.images.edit(**{name: (name + ".png", png(array)) for name, array in files.items()},
                                prompt="a green square", extra_body={"seed": 1, "steps": 2, "strength": 1})
    edited = pixels(base64.b64decode(answer.data[0].b64_json))
    changed = (edited != reference).any(axis=2)
    assert not changed[~HOLE].any() and changed[HOLE].mean() > 0.5


def test_a_mask_in_colour_counts_by_its_luminance(painter, reference):
    """Green (150) is regenerated, red (76) is kept."""
    mask = np.zeros((128, 128, 3), np.uint8)
    mask[:, :64], mask[:, 64:] = (0, 255, 0), (255, 0, 0)
    image, mask = (base64.b64encode(png(array)).decode() for array in (reference.astype(np.uint8), mask))
    body = {"prompt": "a green square", "image": image, "mask": mask, "seed": 1, "steps": 2, "strength": 1,
            "keep_unmasked": False}
    edited = pixels(base64.b64decode(painter.post("/v1/images/edits", body).json()["data"][0]["b64_json"]))
    gray = np.zeros((128, 128, 3), np.uint8)
    gray[:, :64] = 255
    body["mask"] = base64.b64encode(png(gray)).decode()
    assert np.array_equal(pixels(base64.b64decode(painter.post("/v1/images/edits", body).json()["data"][0]["b64_json"])), edited)


def test_images_of_any_size_are_resized(painter):
    """A photo with odd sides, and a mask of another size; the answer says what happened."""
    photo = np.random.default_rng(0).integers(0, 256, (75, 100, 3), np.uint8)
    image, mask = (base64.b64encode(png(array)).decode() for array in (photo, np.full((30, 40), 255, np.uint8)))
    answer = painter.post("/v1/images/edits", {"prompt": "a house", "image": image, "mask": mask, "steps": 1}).json()
    assert answer["size"] == "96x64" and any("resized from 100x75 to 96x64" in w for w in answer["warnings"]), answer["warnings"]
    answer = painter.post("/v1/images/edits", {"prompt": "a house", "image": image, "size": "64x64", "resize": "crop", "steps": 1,
                                               "strength": 1}).json()
    assert answer["size"] == "64x64" and any("(crop)" in w for w in answer["warnings"])


@pytest.mark.parametrize("rule", ["none", "redline", "fbcache", "teacache", "magcache", "easycache", "taylorseer", "dicache"])
def test_every_cache_rule_runs_with_the_defaults_of_the_server(painter, rule):
    answer = painter.post("/v1/images/generations", {"prompt": PROMPT, "seed": 1, "steps": 4, "cache": rule})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("body, param, words", [
    ({}, "prompt", "missing"),
    ({"prompt": "a", "size": "12"}, "size", "WIDTHxHEIGHT"),
    ({"prompt": "a", "size": "100x128"}, "size", "multiple of"),
    ({"prompt": "a", "size": "128x99999"}, "size", "WIDTHxHEIGHT"),
    ({"prompt": "a", "size": "128x9984"}, "size", "from"),
    ({"prompt": "a", "n": 50}, "n", "limit"),
    ({"prompt": "a", "steps": 0}, "steps", "from 1"),
    ({"prompt": "a", "model": "flux"}, "model", "redline-shapes"),
    ({"prompt": "a", "adapters": ["x"]}, "adapters", "no adapters"),
    ({"prompt": "a", "strength": 0.5}, "strength", "without image"),
    ({"prompt": "a", "image": "https://example.org/a.png"}, "image", "URL"),
    ({"prompt": "a", "image": "????"}, "image", "base64"),
    ({"prompt": "a", "image": base64.b64encode(b"no image").decode()}, "image", "PNG"),
    ({"prompt": "a", "mask": "AAAA"}, "mask", ""),
    ({"prompt": "a", "promt": "b"}, "promt", "prompt"),
    ({"prompt": "a", "background": "transparent"}, "background", "opaque"),
])
def test_bad_requests_name_the_field(painter, body, param, words):
    answer = painter.post("/v1/images/generations", body)
    error = answer.json()["error"]
    assert answer.status_code in (400, 404), error
    assert error["param"] == param and words in error["message"], error


def test_two_images_to_edit_are_refused_with_the_remedy(painter, client, reference):
    """OpenAI's models take up to 16 images; these change one."""
    file = png(reference.astype(np.uint8))
    with pytest.raises(openai.BadRequestError, match="more than one image; this model changes one") as error:
        client.images.edit(image=[("a.png", file), ("b.png", file)], prompt="both")
    assert error.value.param == "image"
    urls = ["data:image/png;base64," + base64.b64encode(file).decode()] * 2
    answer = painter.post("/v1/images/edits", {"prompt": "both", "image": urls})
    assert answer.status_code == 400 and "more than one image" in answer.json()["error"]["message"]


@pytest.mark.parametrize("form", ["GIF", "BMP", "TIFF", "animated WebP", "CMYK JPEG"])
def test_images_of_other_formats_are_edited(client, reference, form):
    image, file = Image.fromarray(reference.astype(np.uint8)), io.BytesIO()
    match form:
        case "animated WebP":
            image.save(file, "WebP", lossless=True, save_all=True, append_images=[image.rotate(90)])
        case "CMYK JPEG":
            image.convert("CMYK").save(file, "JPEG", quality=95)
        case _:
            image.save(file, form)
    read = np.asarray(Image.open(io.BytesIO(file.getvalue())).convert("RGB"))
    edited = [client.images.edit(image=("a", given), prompt="a green square", extra_body={"seed": 1, "steps": 2, "strength": 0.5}).data[0].b64_json
              for given in (file.getvalue(), png(read))]
    first, second = (pixels(base64.b64decode(data)) for data in edited)
    # The inverse transforms of JPEG decoders differ by one of 255.
    assert np.array_equal(first, second) if form != "CMYK JPEG" else psnr(first, second) > 40


@pytest.mark.parametrize("solver, cache", [("nonsense", None), (None, "nonsense")])
def test_errors_of_the_engine_are_400(painter, solver, cache):
    body = {"prompt": "a", **({"solver": solver} if solver else {}), **({"cache": cache} if cache else {})}
    answer = painter.post("/v1/images/generations", body)
    assert answer.status_code == 400 and "nonsense" in answer.json()["error"]["message"]


def events_of(server, prediction):
    with server.client.stream("GET", prediction["urls"]["events"]) as answer:
        assert answer.headers["x-accel-buffering"] == "no"
        name = None
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])


def test_predictions_report_progress_and_keep_the_picture(painter, reference):
    answer = painter.post("/v1/predictions", {"input": {"prompt": PROMPT, "seed": 5, "steps": 4, "preview_side": 64}})
    assert answer.status_code == 201
    prediction = answer.json()
    assert answer.headers["location"] == prediction["urls"]["get"]
    events = list(events_of(painter, prediction))
    assert events[-1][0] == "done"
    steps = [data["step"] for name, data in events if name == "progress"]
    assert steps == sorted(steps)
    for name, data in events:
        for preview in data.get("previews", []) if name == "progress" else []:
            assert pixels(base64.b64decode(preview.split(",")[1])).shape == (64, 64, 3)
    done = painter.get(prediction["urls"]["get"]).json()
    assert done["status"] == "succeeded" and done["seeds"] == [5] and done == events[-1][1]
    assert np.array_equal(pixels(painter.get(done["output"][0]).content), reference)
    assert painter.get(done["output"][0][:-1] + "1").status_code == 404
    assert done["id"] in [p["id"] for p in painter.get("/v1/predictions").json()["results"]]
    assert painter.get("/v1/predictions/pred_none").status_code == 404


def test_predictions_can_be_waited_for(painter):
    answer = painter.post("/v1/predictions", {"input": {"prompt": PROMPT, "num_inference_steps": 2}}, headers={"Prefer": "wait"})
    assert answer.status_code == 201 and answer.json()["status"] == "succeeded"


def test_predictions_are_canceled_and_the_queue_has_an_end(painter):
    long = {"input": {"prompt": PROMPT, "steps": 1000, "preview_side": 0}}
    running = painter.post("/v1/predictions", long).json()
    for name, data in events_of(painter, running):
        if name == "progress":
            break
    waiting = [painter.post("/v1/predictions", long) for _ in range(3)]
    assert [a.status_code for a in waiting] == [201] * 3
    assert [a.json()["queue_position"] for a in waiting] == [1, 2, 3]
    refused = painter.post("/v1/predictions", long)
    assert refused.status_code == 429 and "retry-after" in refused.headers
    # In the queue it takes effect at once, and those after it move up.
    assert painter.post(waiting[0].json()["urls"]["cancel"]).json()["status"] == "canceled"
    assert painter.get(waiting[2].json()["urls"]["get"]).json()["queue_position"] == 2
    for prediction in (waiting[2].json(), waiting[1].json(), running):
        painter.post(prediction["urls"]["cancel"])
        assert list(events_of(painter, prediction))[-1][1]["status"] == "canceled"


def test_a_client_that_leaves_cancels_its_picture(painter):
    with pytest.raises(httpx.ReadTimeout):
        painter.post("/v1/images/generations", {"prompt": PROMPT, "steps": 1000}, timeout=0.5)
    # The next one does not wait for a thousand steps.
    answer = painter.post("/v1/images/generations", {"prompt": PROMPT, "steps": 1})
    assert answer.status_code == 200
    # The model takes its next request right after it has reported the end of this one.
    for _ in range(600):
        if painter.metric("redline:predictions_in_flight") == 0:
            break
        time.sleep(0.1)
    else:
        pytest.fail("a request is left")


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.events.append((dict(self.headers.items()), body))
        fails = self.server.failures > 0
        self.server.failures -= fails
        self.send_response(500 if fails else 204)
        self.end_headers()
        if not fails and json.loads(body)["status"] in ("succeeded", "failed", "canceled"):
            self.server.is_over.set()

    def log_message(self, *_):
        pass


def test_webhooks_are_signed_and_tried_again(painter):
    receiver = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    receiver.events, receiver.failures, receiver.is_over = [], 1, threading.Event()
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{receiver.server_port}/hook"
        prediction = painter.post("/v1/predictions", {"input": {"prompt": PROMPT, "steps": 2}, "webhook": url}).json()
        assert receiver.is_over.wait(60)
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()
    events = [(headers, json.loads(body)) for headers, body in receiver.events]
    assert [e["status"] for _, e in events] == ["processing", "processing", "succeeded"]  # the first was refused
    assert all(e["id"] == prediction["id"] for _, e in events)
    ids = [headers["webhook-id"] for headers, _ in events]
    assert ids[0] == ids[1] != ids[2]
    for headers, body in receiver.events:
        content = f'{headers["webhook-id"]}.{headers["webhook-timestamp"]}.'.encode() + body
        key = base64.b64decode(SECRET[len("whsec_"):])
        expected = "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == expected


def test_text_and_pictures_behind_one_port(start):
    tales = ROOT / "assets/redline-tales"
    with start("--threads", "2", models=(str(tales), f"painter={SHAPES}")) as server:
        assert [m["id"] for m in server.get("/v1/models").json()["data"]] == ["redline-tales", "painter"]
        picture = server.post("/v1/predictions", {"model": "painter", "input": {"prompt": PROMPT, "steps": 200}}).json()
        # Text generation continues while an image is generated.
        story = server.post("/v1/completions", {"model": "redline-tales", "prompt": "Once upon a time", "temperature": 0, "max_tokens": 20})
        assert story.status_code == 200 and story.json()["usage"]["completion_tokens"] == 20
        assert server.get(picture["urls"]["get"]).json()["status"] in ("queued", "processing")
        server.post(picture["urls"]["cancel"])
        wrong = server.post("/v1/completions", {"model": "painter", "prompt": "a"})
        assert wrong.status_code == 404 and "painter is a model for images" in wrong.json()["error"]["message"]
        wrong = server.post("/v1/predictions", {"model": "redline-tales", "input": {"prompt": PROMPT}})
        assert wrong.status_code == 404 and "redline-tales is a model for text" in wrong.json()["error"]["message"]

"""A story and an image from Python, with the package redline (docs/python.md):

    python examples/python/hello.py assets/redline-tales assets/redline-shapes hello.png
"""
import sys

import redline


def tell_story(path: str) -> None:
    prompt = "Once upon a time"
    print(prompt, end="")
    with redline.Model(path) as model:
        story = model.generate(prompt, max_tokens=80, seed=1, stream=True)
        for chunk in story:
            print(chunk.text, end="", flush=True)
        completion = story.completion
    print(f"\n[{len(completion.token_ids)} tokens, {completion.finish_reason}]")


def draw(path: str, png: str) -> None:
    def print_step(progress: redline.StepProgress) -> None:
        print(f"\rstep {progress.step} of {progress.steps}", end="", file=sys.stderr)

    with redline.ImagePipeline(path) as painter:
        result = painter("a large red circle on a blue background", num_inference_steps=8, seed=1, callback=print_step)
    image = result.to_redline()[0]
    image.save(png)
    print(file=sys.stderr)
    print(f"{png}: {image.width} x {image.height}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: hello.py TEXT_MODEL IMAGE_MODEL OUT.png")
    try:
        tell_story(sys.argv[1])
        draw(sys.argv[2], sys.argv[3])
    except redline.Error as error:
        sys.exit(f"{error.code}: {error}")

"""What is repeated keeps no objects of the garbage collector."""
import asyncio
import gc

import pytest
import redline

PROMPT = "Once upon a time"
ROUNDS, CALLS = 2, 2


def count():
    gc.collect()
    return len(gc.get_objects())


def stream(model, **options):
    return model.generate(PROMPT, max_tokens=4, ignore_eos=True, stream=True, **options)


def half_a_stream(model):
    with stream(model) as chunks:
        next(chunks)


def an_error(model):
    with pytest.raises(redline.InvalidArgument):
        model.generate(PROMPT, top_p=5.0)
    with pytest.raises(redline.InvalidArgument):
        model.logits([10**8])


async def awaited(model):
    await asyncio.gather(*(model.agenerate(PROMPT, max_tokens=3) for _ in range(2)))
    async for _ in model.agenerate(PROMPT, max_tokens=3, stream=True):
        pass


def sequence(model):
    made = model.new_sequence()
    made.append([1, 2, 3])
    other = made.fork()
    other.append([4])


def opened(model):
    with redline.Model(model.path, dtype="f32", threads=1, context=64) as other:
        other.generate(PROMPT, max_tokens=2)


ACTIONS = {
    "generate": lambda model: model.generate(PROMPT, max_tokens=3, logprobs=2, stop=["x"], logit_bias={5: 1.0}, stop_token_ids=[7]),
    "list": lambda model: model.generate([PROMPT, [1, 2, 3]], n=2, max_tokens=3, seed=1),
    "constraint": lambda model: model.generate(PROMPT, max_tokens=5, choices=["yes", "no"]),
    "stream": lambda model: list(stream(model, logprobs=1)),
    "half a stream": half_a_stream,
    "dropped stream": stream,
    "async": lambda model: asyncio.run(awaited(model)),
    "logits": lambda model: model.logits([1, 2, 3], all=True),
    "tokenizer": lambda model: model.tokenizer.decode(model.tokenizer.encode(PROMPT)),
    "sequence": sequence,
    "describe": lambda model: (model.info, model.stats, redline.devices()),
    "error": an_error,
    "open": opened,
}


def check(action, *arguments):
    """In at least one of the rounds nothing grew: a leak grows in each."""
    action(*arguments)
    counts = [count()]
    for _ in range(ROUNDS):
        for _ in range(CALLS):
            action(*arguments)
        counts.append(count())
    assert min(after - before for before, after in zip(counts, counts[1:])) < CALLS, counts


@pytest.mark.parametrize("name", ACTIONS)
def test_text(model, name):
    check(ACTIONS[name], model)


def test_images(painter):
    def paint(callback):
        result = painter("a red circle", num_inference_steps=1, width=64, height=64, callback=callback, keep_latents=True)
        return result.images[0], result.to_numpy(), result.latents

    check(paint, lambda progress: progress.step)

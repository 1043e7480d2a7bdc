"""agenerate, achat: awaited together, streamed, cancelled, left behind."""
import asyncio
import gc
import subprocess
import sys
import time
import weakref

import pytest
import redline

PROMPT = "Once upon a time"


def test_await(model):
    expected = model.generate(PROMPT, temperature=0, max_tokens=10)

    async def run():
        one = await model.agenerate(PROMPT, temperature=0, max_tokens=10)
        two = await model.agenerate([PROMPT, "The dog"], temperature=0, max_tokens=10)
        several = await model.agenerate(PROMPT, temperature=0, max_tokens=10, n=2)
        return one, two, several

    one, two, several = asyncio.run(run())
    assert one.text == expected.text and one.usage.total_tokens == expected.usage.total_tokens
    assert isinstance(two, list) and two[0].text == expected.text
    assert [c.text for c in several] == [expected.text] * 2


def test_awaited_together_is_one_batch(model):
    async def run():
        before = model.stats["steps"]
        found = await asyncio.gather(*(model.agenerate(f"The dog {i}", temperature=0, max_tokens=20) for i in range(8)))
        return found, model.stats["steps"] - before

    found, steps = asyncio.run(run())
    assert [c.text for c in found] == [model.generate(f"The dog {i}", temperature=0, max_tokens=20).text for i in range(8)]
    assert steps < 4 * 20


def test_stream(model):
    expected = model.generate(PROMPT, temperature=0, max_tokens=10, logprobs=1)

    async def run():
        stream = model.agenerate(PROMPT, temperature=0, max_tokens=10, logprobs=1, stream=True)
        chunks = [chunk async for chunk in stream]
        return chunks, await stream

    chunks, whole = asyncio.run(run())
    assert "".join(c.text for c in chunks) == whole.text == expected.text
    assert [c.token_id for c in chunks if c.token_id is not None] == expected.token_ids
    assert [c.logprob.token_id for c in chunks if c.logprob] == expected.token_ids


def test_chat(model):
    if not model.has_chat_template:
        pytest.skip("the bundled model has no chat template")

    async def run():
        stream = model.achat("Tell me a story.", temperature=0, max_tokens=10, stream=True)
        text = "".join([chunk.text async for chunk in stream])
        return text, (await model.achat("Tell me a story.", temperature=0, max_tokens=10)).content

    text, content = asyncio.run(run())
    assert text == content == model.chat("Tell me a story.", temperature=0, max_tokens=10).content


def test_the_loop_runs_meanwhile(model):
    async def run():
        ticks = 0
        task = asyncio.ensure_future(_await(model.agenerate(PROMPT, max_tokens=200, ignore_eos=True)))
        while not task.done():
            ticks += 1
            await asyncio.sleep(0.001)
        return ticks

    assert asyncio.run(run()) > 5


async def _await(awaitable):
    return await awaitable


def test_a_cancelled_task_cancels_its_request(model):
    async def run():
        task = asyncio.ensure_future(_await(model.agenerate(PROMPT, max_tokens=4000, ignore_eos=True)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with model.agenerate(PROMPT, max_tokens=4000, ignore_eos=True, stream=True) as stream:
            async for _ in stream:
                break
        while model.stats["running"] or model.stats["waiting"]:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_errors(model):
    async def run():
        with pytest.raises(redline.InvalidArgument, match="top_p"):
            await model.agenerate(PROMPT, top_p=5.0)
        with pytest.raises(TypeError, match="use max_tokens"):
            await model.agenerate(PROMPT, max_new_tokens=5)
        with pytest.raises(redline.InvalidArgument, match="context"):
            async for _ in model.agenerate([1] * (model.context + 1), stream=True):
                pass

    asyncio.run(run())


def test_a_stream_kept_after_its_loop_is_freed(model):
    async def run():
        stream = model.agenerate(PROMPT, max_tokens=400, ignore_eos=True, stream=True)
        async for _ in stream:
            return stream

    stream = asyncio.run(run())
    deadline = time.monotonic() + 60
    while stream._inbox.error is None and time.monotonic() < deadline:  # the next piece finds the loop closed
        time.sleep(0.01)
    assert isinstance(stream._inbox.error, RuntimeError)
    generation = weakref.ref(stream._generation)
    del stream
    gc.collect()
    assert generation() is None


def test_the_program_ends_while_a_stream_runs(root):
    """The engine's thread must not call into an interpreter that is ending."""
    program = """
import asyncio, redline, sys
model = redline.Model(sys.argv[1])
async def run():
    stream = model.agenerate("Once", max_tokens=4000, ignore_eos=True, stream=True)
    async for _ in stream:
        return stream
kept = asyncio.run(run())
print("end")
"""
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", program, str(root / "assets/redline-tales")], capture_output=True,
                               text=True, timeout=120, check=False)
        assert (ended.returncode, ended.stdout) == (0, "end\n"), ended.stderr

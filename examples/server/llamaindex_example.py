"""LlamaIndex over a Redline server; nothing of Redline is needed in this process.

    redline serve redline-tales &
    pip install llama-index-llms-openai-like
    python examples/server/llamaindex_example.py http://127.0.0.1:8080/v1 redline-tales
"""
import sys

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike


def main(base_url: str, model: str) -> None:
    # A local server needs no key, and the client asks for one.
    llm = OpenAILike(model=model, api_base=base_url, api_key="none", is_chat_model=True, context_window=2048, max_tokens=60,
                     temperature=0)
    answer = llm.chat([ChatMessage(role="user", content="Tell me about a little dog.")])
    print("answer:", answer.message.content)
    print("streamed: ", end="")
    for part in llm.stream_chat([ChatMessage(role="user", content="Tell me about an old tree.")]):
        print(part.delta, end="", flush=True)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:3])

"""LangChain over a Redline server; nothing of Redline is needed in this process.

    redline serve redline-tales &
    pip install langchain-openai
    python examples/server/langchain_example.py http://127.0.0.1:8080/v1 redline-tales
"""
import sys

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI


def main(base_url: str, model: str) -> None:
    # A local server needs no key, and the client asks for one.
    chat = ChatOpenAI(base_url=base_url, model=model, api_key="none", temperature=0, max_tokens=60)
    prompt = ChatPromptTemplate.from_messages([("system", "You tell stories for children."), ("user", "Tell me about {hero}.")])
    chain = prompt | chat | StrOutputParser()
    print("together:", chain.batch([{"hero": "a little dog"}, {"hero": "a brave girl"}]))
    print("streamed: ", end="")
    for part in chain.stream({"hero": "an old tree"}):
        print(part, end="", flush=True)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:3])

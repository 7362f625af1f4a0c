"""Search back ends behind one protocol (`sesa_env.retrieval.base.Retriever`).

from sesa_env.registry import RETRIEVERS
retriever = RETRIEVERS.make("bm25", corpus="atlas")
"""

from sesa_env.registry import RETRIEVERS

RETRIEVERS.register("bm25", "sesa_env.retrieval.index:bm25_retriever")
RETRIEVERS.register("lucene", "sesa_env.retrieval.index:lucene_retriever")

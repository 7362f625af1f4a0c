"""Search back ends behind one protocol (`sesa_env.retrieval.base.Retriever`).

from sesa_env.registry import RETRIEVERS
retriever = RETRIEVERS.make("bm25", corpus="atlas")
"""

from sesa_env.registry import ENCODERS, RETRIEVERS

RETRIEVERS.register("bm25", "sesa_env.retrieval.index:bm25_retriever")
RETRIEVERS.register("lucene", "sesa_env.retrieval.index:lucene_retriever")
RETRIEVERS.register("dense", "sesa_env.retrieval.index:dense_retriever")
RETRIEVERS.register("fuse", "sesa_env.retrieval.fuse:fused_retriever")
RETRIEVERS.register("bm25+dense", "sesa_env.retrieval.fuse:bm25_and_dense")
RETRIEVERS.register("lucene+bm25", "sesa_env.retrieval.fuse:lucene_and_bm25")
RETRIEVERS.register("lucene+dense", "sesa_env.retrieval.fuse:lucene_and_dense")

ENCODERS.register("e5-base-v2", "sesa_env.encoders:e5_base_v2")
ENCODERS.register("minilm", "sesa_env.encoders:minilm")

"""Writing with a model: many texts side by side, and in each turn only what is new is read.

    writer = Writer(model, end_ids={2}, side_by_side=40, max_context=2048)
    completions = writer.write(prompts, stopped=..., max_new_tokens=48, temperature=1.0, generator=..., names=names)

Any stock model of `transformers` whose layers attend through its attention interface is written with as it is; only
the attention function is replaced while it writes (`attention`).  Keys and values of a text lie in a row of its own
(`rows`), are kept between turns (`kept`), and are brought side by side while tokens are written (`batch`).

Nothing here tokenises or knows a role.
"""

from agents.generation.writer import Writer as Writer

"""Models of the published tables by name: shapes from models/library, and what kernels need beyond
them (latent attention, shared experts, layers that differ)."""

import orrery
from today.runs import Model

# Models of other sizes than the library's, as changes to one of it.
VARIANTS = {
    # The vocabulary of the benchmark's tokenizer.
    "gpt3_175b_mlperf": ("gpt3_175b", {"vocabulary": 51200}),
    "gpt_5b": ("gpt3_6.7b", {"layers": 24, "hidden": 4096, "heads": 32, "kv_heads": 32,
                             "head_dim": 128, "ffn": 16384}),  # PaxML's GPT5B
}


def usual_layer(shape):
    """The layer of a ModelShape: attention with grouped queries, dense or of experts."""
    return orrery.kernel_layer(shape, "moe" if shape.experts else "transformer")


def layers_of(shape):
    """With experts, and without."""
    return tuple(orrery.kernel_layer(shape, kind) for kind in ("moe", "transformer"))


def matrices(*projections):
    return [orrery.KernelProjection(rows=rows, columns=columns, split=split)
            for rows, columns, split in projections]


def deepseek_v3():
    """[DeepSeek-AI 2024, DeepSeek-V3 Technical Report, 4.2]. The shape that messages and parameters
    are counted from stands for latent attention and the shared expert by grouped queries with as
    many parameters."""
    real = orrery.load_shape("deepseek_v3")
    shape = orrery.load_shape("qwen3_235b_a22b").replace(
        name=real.name, layers=real.layers, hidden=real.hidden, heads=real.heads, kv_heads=1,
        head_dim=125, ffn=real.ffn, vocabulary=real.vocabulary, experts=real.experts,
        top_k=real.top_k)
    return Model(shape, layers_of(real), (1,) * 3 + (0,) * 58)


def kimi_k2():
    """[Kimi Team 2025, Kimi K2, Table 2]: DeepSeek-V3's layer with 384 experts and 64 heads."""
    base = deepseek_v3()
    layer, heads, hidden = base.layers[0], 64, 7168
    layer = layer.replace(
        heads=heads, kv_heads=heads, experts=384,
        projections=matrices((hidden, 1536 + 512 + 64, "none"), (1536, heads * 192, "columns"),
                             (512, heads * 256, "columns"), (heads * 128, hidden, "rows")))
    dense = layer.replace(experts=0, top_k=0, expert_ffn=0, ffn=18432)
    shape = base.shape.replace(name="kimi_k2", experts=384, heads=heads, head_dim=160,
                               vocabulary=163840)
    return Model(shape, (layer, dense), (1,) + (0,) * 60)


def llama4_maverick():
    """meta-llama/Llama-4-Maverick-17B-128E, config.json: every other layer has 128 experts, of
    which a token takes one, and a shared one. The shape that messages and parameters are counted
    from has experts of half the width in every layer."""
    real = orrery.load_shape("llama4_maverick")
    shape = orrery.load_shape("llama3_8b").replace(
        name=real.name, layers=real.layers, hidden=real.hidden, heads=real.heads,
        kv_heads=real.kv_heads, head_dim=real.head_dim, ffn=4096, vocabulary=real.vocabulary,
        experts=real.experts, top_k=real.top_k)
    moe, dense = layers_of(real)
    return Model(shape, (dense, moe), (0, 1) * 24)


def gpt_oss():
    """gpt-oss 120B: every other layer attends to 128 tokens only."""
    shape = orrery.load_shape("gpt_oss_120b")
    layer = usual_layer(shape)
    return Model(shape, (layer.replace(window=128), layer), (0, 1) * 18)


def mamba(hidden, inner, groups, state, heads):
    """A Mamba-2 layer: one projection in, one out, and a scan that is bound by memory [Dao and Gu
    2024, 7]."""
    return orrery.KernelLayer(
        hidden=hidden, gated=False, norms=1, scan=inner + 2 * groups * state,
        projections=matrices((hidden, 2 * inner + 2 * groups * state + heads, "columns"),
                             (inner, hidden, "rows")))


def nemotron_h_56b():
    """[NVIDIA 2025, Nemotron-H, 2.1]: 54 Mamba-2, 54 feed-forward and 10 attention layers. Where
    the attention layers lie is not counted; the shape's layers have as many parameters."""
    hidden, ffn, heads = 8192, 32768, 64
    attention = orrery.KernelLayer(
        hidden=hidden, heads=heads, kv_heads=8, query_width=128, value_width=128, gated=False,
        norms=1, projections=matrices((hidden, (heads + 16) * 128, "columns"),
                                      (heads * 128, hidden, "rows")))
    feed = orrery.KernelLayer(hidden=hidden, ffn=ffn, gated=False, norms=1)
    shape = orrery.load_shape("nemotron4_15b").replace(
        name="nemotron_h_56b", layers=118, hidden=hidden, heads=64, kv_heads=8, head_dim=128,
        ffn=19504, vocabulary=131072)
    order = [0 if place % 2 == 0 else 1 for place in range(118)]
    for place in range(5, 118, 12):
        order[place - 1] = 2
    return Model(shape, (mamba(hidden, 2 * hidden, 8, 256, 256), feed, attention), tuple(order))


def stand_in(name, layers, hidden, active, total, heads, kv_heads, vocabulary):
    """A model whose description was not at hand: layers of grouped-query attention and 128 experts,
    8 of them and a shared one for each token, with as many active and as many total parameters as
    published. What it is made of otherwise (Mamba layers, latent experts) is not counted."""
    attention = hidden * 128 * 2 * (heads + kv_heads)
    ends = 2 * vocabulary * hidden
    of_layer = (active - ends) / layers - attention
    expert = max(64, round((total - active) / layers / (120 * 3 * hidden) / 64) * 64)
    shared = max(64, round((of_layer / (3 * hidden) - 8 * expert) / 64) * 64)
    shape = orrery.load_shape("qwen3_30b_a3b").replace(
        name=name, layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=expert,
        vocabulary=vocabulary, experts=128, top_k=8)
    return Model(shape, (usual_layer(shape).replace(ffn=shared),))


# Layers, hidden, active and total parameters, heads, kv heads, vocabulary: names and model cards;
# widths of Super, Ultra, Lightning and V4 Flash are assumed.
STAND_INS = {
    "nemotron_3_nano": (26, 2688, 3.6e9, 31.6e9, 32, 2, 131072),
    "nemotron_3_5_lightning": (26, 2688, 4.5e9, 31.6e9, 32, 2, 131072),
    "nemotron_3_super": (44, 4096, 12.7e9, 120e9, 32, 2, 131072),
    "nemotron_3_ultra": (54, 8192, 55e9, 500e9, 64, 8, 131072),
    "deepseek_v4_flash": (43, 4096, 13e9, 280e9, 64, 8, 129280),
}
SPECIAL = {"deepseek_v3": deepseek_v3, "kimi_k2": kimi_k2, "llama4_maverick": llama4_maverick,
           "gpt_oss_120b": gpt_oss, "nemotron_h_56b": nemotron_h_56b}


def packed(made, tokens):
    """The same on sequences packed from documents of so many tokens, each of which attends to
    itself alone."""
    return Model(made.shape, tuple(layer.replace(window=tokens // 2) for layer in made.layers),
                 made.order)


def model(name, layers=None):
    """A model; with fewer layers, its first ones."""
    if name in SPECIAL:
        made = SPECIAL[name]()
    elif name in STAND_INS:
        made = stand_in(name, *STAND_INS[name])
    else:
        base, changes = VARIANTS.get(name, (name, {}))
        shape = orrery.load_shape(base).replace(name=name, **changes)
        made = Model(shape, (usual_layer(shape),))
    if layers is None or layers == made.shape.layers:
        return made
    return Model(made.shape.replace(layers=layers), made.layers, made.order[:layers])

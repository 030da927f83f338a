"""Time of the kernels of one block on today's GPUs, from counts of their work: matrix products by
shape (tiles, waves over the multiprocessors, K loop), in FP8 or FP4 with the casts around them;
attention by length and width of a head; everything else by the bytes that it moves. What
a100/kernels.py counts for GPT with unfused attention on one type of GPU, here for any decoder.

How many bytes a kernel moves is counted from what it must read and write (unverified: not
measured). Times in seconds, sizes in bytes, all of one GPU and one micro-batch."""

import math
from dataclasses import dataclass, replace

# Rows and columns of a tile of the result, and the rate relative to the largest one's.
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9), (128, 64, 0.75), (64, 64, 0.55))
# Steps of the K loop that filling and draining a tile's pipeline cost, in elements of K (assumed).
TILE_OVERHEAD = 192.0


@dataclass(frozen=True)
class Gpu:
    """A type of GPU: data that the library does not have, which is for programs and not for
    kernels. `products` are the best measured matrix products in FLOP/s; where none was published
    (fp4; GB300) the share of peak that the same generation reaches in fp8 is assumed.
    [stas00/ml-engineering@744d01e, compute/accelerator/README.md; white papers]"""
    library: str  # name in models/library/gpus.yaml
    multiprocessors: int
    products: dict
    scale_up: str  # link classes
    network: str
    domain: int = 8  # GPUs that share the scale-up links
    per_nic: int = 1  # GPUs that share a network adapter


GPUS = {
    # Jean Zay: four GPUs and four Omni-Path adapters of 100 Gb/s on a node. Of the best product the
    # share of peak that A100 reaches is assumed.
    "V100-JZ": Gpu("V100-32GB", 80, {"bf16": 109e12}, "nvlink2", "infiniband-100", domain=4),
    "A100": Gpu("A100-80GB", 108, {"bf16": 271e12}, "nvlink3", "infiniband-200"),
    # Jean Zay: four Omni-Path adapters of 100 Gb/s on a node of eight.
    "A100-JZ": Gpu("A100-80GB", 108, {"bf16": 271e12}, "nvlink3", "infiniband-100", per_nic=2),
    "A100-40GB": Gpu("A100-40GB", 108, {"bf16": 271e12}, "nvlink3", "infiniband-200"),
    "H100": Gpu("H100-80GB", 132, {"bf16": 795e12, "fp8": 1403e12}, "nvlink4", "infiniband-400"),
    "H200": Gpu("H200-141GB", 132, {"bf16": 795e12, "fp8": 1453e12}, "nvlink4", "infiniband-400"),
    "B200": Gpu("B200-180GB", 148, {"bf16": 1745e12, "fp8": 3433e12, "fp4": 6867e12}, "nvlink5",
                "infiniband-400"),
    "B300": Gpu("B300-288GB", 148, {"bf16": 1769e12, "fp8": 3353e12, "fp4": 9388e12}, "nvlink5",
                "infiniband-800"),
    "GB200": Gpu("GB200-186GB", 152, {"bf16": 1822e12, "fp8": 3616e12, "fp4": 7232e12}, "nvlink5",
                 "infiniband-400", 64),
    "GB300": Gpu("GB300-288GB", 152, {"bf16": 1822e12, "fp8": 3616e12, "fp4": 10848e12}, "nvlink5",
                 "infiniband-800", 64),
}


@dataclass(frozen=True)
class Layer:
    """What a layer consists of, whatever it is called. Widths in elements."""
    hidden: int
    heads: int
    # Weight matrices of attention as (rows, columns, what tensor parallelism divides: "columns",
    # "rows" or ""), without their biases.
    projections: tuple
    query_width: int  # of a head, in scores
    value_width: int  # of a head, in context
    kv_heads: int
    ffn: int  # dense feed-forward, or a shared expert; 0: none
    gated: bool
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    window: int = 0  # tokens that attention sees; 0: all
    unfused: bool = False  # attention as two batches of products with a softmax between, as in 2022
    norms: int = 2  # with residual sums
    scan: int = 0  # elements for each token that a state-space scan reads


def usual_layer(shape):
    """The layer of a ModelShape: attention with grouped queries, dense or of experts."""
    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    moe = shape.experts > 0
    return Layer(hidden=shape.hidden, heads=shape.heads,
                 projections=((shape.hidden, query + 2 * kv, "columns"),
                              (query, shape.hidden, "rows")),
                 query_width=shape.head_dim, value_width=shape.head_dim, kv_heads=shape.kv_heads,
                 ffn=0 if moe else shape.ffn, gated=shape.activation == "swiglu",
                 experts=shape.experts, top_k=shape.top_k, expert_ffn=shape.ffn if moe else 0)


@dataclass(frozen=True)
class Degrees:
    """How a layer is divided, and what it computes."""
    sequence: int
    samples: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    precision: str = "bf16"  # of the layers' linear products; attention and head stay in bf16
    causal: bool = True
    sequence_parallel: bool = True  # kernels between products see a part of the sequence each
    accumulates: bool = True  # gradients are added to a sum in fp32

    @property
    def tokens(self):
        return float(self.samples) * self.sequence / self.cp

    @property
    def own_tokens(self):
        """That kernels of the whole width see."""
        return self.tokens / (self.tp if self.sequence_parallel else 1)


@dataclass(frozen=True)
class Times:
    forward: float = 0.0
    backward: float = 0.0  # without recomputation
    attention: float = 0.0  # part of forward that selective recomputation repeats

    def __add__(self, other):
        return Times(self.forward + other.forward, self.backward + other.backward,
                     self.attention + other.attention)


@dataclass(frozen=True)
class Device:
    """One GPU with the shares that are fitted."""
    gpu: Gpu
    bandwidth: float  # of memory, raw
    product_share: dict  # by precision: of the best measured product
    attention_share: float  # of the best measured bf16 product, forward, for long sequences
    memory_share: float
    gap: float  # s between two kernels of a stream
    unaligned: float = 1.0  # rate of products whose rows are no multiples of 16 bytes
    routing: float = 1.0  # traffic of the kernels around the experts over what layer_times() counts

    def product(self, m, n, k, precision="bf16", batch=1.0):
        """`batch` products of m x k by k x n: the larger of moving operands and result once, and
        computing in waves of tiles, one on each multiprocessor; the best of several tiles, a last
        wave of which is shared out along K where that is shorter. [NVIDIA, Matrix Multiplication
        Background User's Guide, 2.3, 3.1, 3.2; Osama et al. 2023, Stream-K]"""
        rate = self.gpu.products[precision] * self.product_share[precision]
        flops = math.inf
        for rows, columns, relative in TILES:
            tiles = batch * math.ceil(m / rows) * math.ceil(n / columns)
            waves = math.ceil(tiles / self.gpu.multiprocessors)
            # Half of what an unfilled last wave leaves idle is won back by splitting K.
            waves = (waves + max(tiles / self.gpu.multiprocessors, 1.0)) / 2
            flops = min(flops, waves * self.gpu.multiprocessors * 2 * rows * columns *
                        (k + TILE_OVERHEAD) / relative)
        operand = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.56}[precision]
        moved = batch * (operand * (m * k + k * n) + 2 * m * n)
        return max(flops / rate, self.streaming(moved)) + self.gap

    def streaming(self, moved):
        """Kernels that move this many bytes."""
        return moved / (self.bandwidth * self.memory_share)

    def linear(self, m, n, k, at, batch=1.0):
        """Both passes of a weight matrix of k x n on m rows: product, casts of what goes in (read
        bf16, written row- and column-wise), product for each gradient, casts of the gradient that
        comes in, and the sum of weight gradients in fp32, which the product's epilogue adds to."""
        low = at.precision != "bf16"
        element = {"bf16": 0.0, "fp8": 4.0, "fp4": 3.2}[at.precision]
        forward = self.product(m, n, k, at.precision, batch)
        backward = (self.product(m, k, n, at.precision, batch) +
                    max(self.product(k, n, m, at.precision, batch),
                        self.streaming((8.0 if at.accumulates else 2.0) * batch * n * k)))
        if low:
            forward += self.streaming(element * batch * m * k) + 2 * self.gap
            backward += self.streaming(element * batch * m * n) + 2 * self.gap
        return Times(forward, backward)

    def unfused_attention(self, layer, at):
        """Products of queries and keys, and of weights and values, for each head; between them a
        fused softmax and dropout, whose matrices of s^2 elements go through memory: 9 bytes an
        element forward, 11 backward (../a100/kernels.py). A width that is no multiple of eight
        elements (16 bytes) keeps products from loading whole vectors: they run at `unaligned` of
        their rate. [NVIDIA, Matrix Multiplication Background User's Guide, 2.2]"""
        heads = at.samples * layer.heads / at.tp
        s, width = float(at.sequence), layer.query_width
        rate = 1.0 if width % 8 == 0 else self.unaligned
        products = (self.product(s, s, width, batch=heads) +
                    self.product(s, width, s, batch=heads)) / rate
        scores = heads * s * s
        forward = products + self.streaming(9 * scores) + self.gap
        return Times(forward, 2 * products + self.streaming(11 * scores) + self.gap, forward)

    def attention(self, layer, at):
        """Fused attention: 4 s^2 width for each head forward, half of it under a causal mask, and
        2.5 times that backward, at 0.8 of the forward rate; short sequences fill the tiles of 128
        queries and keys less well. [Dao 2023, 4.1; Shah et al. 2024, figures 5 and 6]"""
        if layer.heads == 0:
            return Times()
        if layer.unfused:
            return self.unfused_attention(layer, at)
        heads = at.samples * layer.heads / at.tp
        pairs = float(at.sequence) * at.sequence / at.cp / (2 if at.causal else 1)
        if layer.window:
            pairs = min(pairs, float(at.sequence) * layer.window / at.cp)
        flops = heads * 2 * (layer.query_width + layer.value_width) * pairs
        width = min(1.0, 0.6 + 0.4 * (layer.value_width / 128))
        fills = at.sequence / (at.sequence + 512.0)
        rate = self.gpu.products["bf16"] * self.attention_share * fills * width
        moved = 2 * at.tokens / at.tp * (
            layer.heads * (layer.query_width + layer.value_width) +
            layer.kv_heads * (layer.query_width + layer.value_width))
        forward = max(flops / rate, self.streaming(moved)) + self.gap
        backward = max(2.5 * flops / (0.8 * rate), self.streaming(2 * moved)) + 2 * self.gap
        return Times(forward, backward, forward)


def layer_times(layer, at, device, grouped=None):
    """A layer. `grouped`: experts on this GPU; none: layer.experts / ep."""
    tokens, hidden, tp = at.tokens, layer.hidden, at.tp
    total = device.attention(layer, at)
    for rows, columns, divided in layer.projections:
        columns_here = columns / tp if divided == "columns" else columns
        rows_here = rows / tp if divided == "rows" else rows
        total += device.linear(tokens, columns_here, rows_here, at)
    wide = 2 if layer.gated else 1
    part = 0.0  # elements of the feed-forward's width that kernels between products see
    if layer.ffn:
        total += device.linear(tokens, wide * layer.ffn / tp, hidden, at)
        total += device.linear(tokens, hidden, layer.ffn / tp, at)
        part += tokens * layer.ffn / tp
    if layer.experts:
        local = grouped or max(1.0, layer.experts / at.ep)
        rows = tokens * layer.top_k * at.ep / layer.experts  # of one expert; tokens of all ranks
        total += device.linear(rows, wide * layer.expert_ffn / tp, hidden, at, local)
        total += device.linear(rows, hidden, layer.expert_ffn / tp, at, local)
        part += rows * local * layer.expert_ffn / tp
        # Router; permutation and its inverse with probabilities: each routed row read and written
        # twice forward and three times backward, times `routing`.
        total += device.linear(tokens, layer.experts, hidden,
                               replace(at, precision="bf16"))
        routed = rows * local * hidden / tp * device.routing
        total += Times(device.streaming(8 * routed), device.streaming(12 * routed))
    # Norms see the whole width of their part of the sequence: 2 forward (4 bytes an element each),
    # backward 8 each with the weights' gradients; residual sums 6 forward, 2 x 6 backward.
    whole = at.own_tokens * hidden
    query = tokens * layer.heads * layer.query_width / tp
    scan = tokens * layer.scan / tp  # read and written in a few kernels [unverified]
    forward = layer.norms * (4 + 6) * whole + (2 * (wide + 1)) * part + 8 * query + 12 * scan
    backward = layer.norms * (8 + 6) * whole + 2 * (2 * wide + 1) * part + 8 * query + 30 * scan
    return total + Times(device.streaming(forward) + 6 * device.gap,
                         device.streaming(backward) + 8 * device.gap)


def embedding_times(hidden, vocabulary, at, device):
    """Look-up, and the gradient into a dense sum in fp32."""
    whole = at.own_tokens * hidden
    return Times(device.streaming(4 * whole), device.streaming(10 * whole))


def head_times(hidden, vocabulary, at, device):
    """Final norm, projection onto the vocabulary in bf16, cross-entropy in fp32 (logits read
    four times and written twice forward; once each backward)."""
    high = replace(at, precision="bf16")
    logits = at.tokens * vocabulary / at.tp
    whole = at.own_tokens * hidden
    return (device.linear(at.tokens, vocabulary / at.tp, hidden, high) +
            Times(device.streaming(4 * whole + 22 * logits),
                  device.streaming(10 * whole + 8 * logits)))


def optimizer_time(parameters, device, weight_bytes=2.0):
    """Adam over `parameters` elements of one GPU with fp32 sums and master copies: the norm reads
    gradients (4), Adam reads gradient, moments and master (16) and writes moments and master (12)
    and the weight."""
    return device.streaming((4 + 16 + 12 + weight_bytes) * parameters)

"""Time of the kernels of one GPT layer on one A100, from counts of their work: matrix products by
shape (tile and wave quantization, roofline), all other kernels by the bytes that they move. It
replaces a measured profile of the GPU, which the published tables lack.

Counts follow Megatron-LM's layer with fused bias-GeLU, bias-dropout-add and scaled masked softmax,
dropout, and attention that is not fused [Shoeybi et al. 2019, 3; Narayanan et al. 2021, 4.2]. How
many bytes each kernel moves is counted from what it must read and write (unverified: not
measured). Times in seconds, sizes in bytes."""

import math
from dataclasses import dataclass

MULTIPROCESSORS = 108  # streaming multiprocessors of an A100 [NVIDIA A100 white paper]
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9))  # rows, columns, relative rate
ELEMENT = 2.0  # bytes of fp16


@dataclass(frozen=True)
class Device:
    """One GPU."""
    peak: float  # FLOP/s of fp16 tensor cores
    memory_bandwidth: float  # bytes/s, raw
    gemm_share: float = 1.0
    memory_share: float = 1.0

    def product(self, m, n, k, batch=1.0):
        """`batch` products of m x k by k x n in fp16: the larger of moving operands and result
        once, and computing in waves of tiles, one tile on each multiprocessor. The best of tiles of
        256 x 128, 128 x 256 and 128 x 128, the last at 0.9 of the others' rate (assumed). [NVIDIA,
        Matrix Multiplication Background User's Guide, 2.3, 3.1, 3.2]"""
        flops = math.inf
        for rows, columns, rate in TILES:
            tiles = batch * math.ceil(m / rows) * math.ceil(n / columns)
            waves = math.ceil(tiles / MULTIPROCESSORS)
            flops = min(flops, waves * MULTIPROCESSORS * 2 * rows * columns * k / rate)
        computing = flops / (self.peak * self.gemm_share)
        return max(computing, self.streaming(ELEMENT * batch * (m * k + k * n + m * n)))

    def streaming(self, moved):
        """A kernel that moves this many bytes."""
        return moved / (self.memory_bandwidth * self.memory_share)

    def linear(self, m, n, k):
        """Forward pass of a weight matrix of k x n."""
        return self.product(m, n, k)

    def linear_backward(self, m, n, k, accumulation):
        """Gradients of its input and of the weight, and the sum of the latter over
        micro-batches."""
        return (self.product(m, k, n) + self.product(k, n, m) +
                self.streaming(accumulation * n * k))


@dataclass(frozen=True)
class Block:
    """What the kernels of a block depend on."""
    sequence: float  # s
    hidden: float  # h; the feed-forward is 4 h wide
    heads: float  # a
    vocabulary: float  # padded
    samples: float  # b
    tp: float = 1.0  # t
    sequence_parallel: bool = False
    # Bytes moved for each parameter to add a gradient to the sum over micro-batches
    # (runs.Software); 0 where there is one micro-batch only.
    accumulation_bytes: float = 0.0


@dataclass(frozen=True)
class Times:
    forward: float
    backward: float  # without recomputation
    attention_core: float = 0.0  # part of forward that selective recomputation repeats


def layer(block, device):
    tokens = block.samples * block.sequence
    h, t = block.hidden, block.tp
    width = h / block.heads  # of a head
    batch = block.samples * block.heads / t
    linears = ((tokens, 3 * h / t, h),  # query, key, value
               (tokens, h, h / t),      # projection
               (tokens, 4 * h / t, h),  # up
               (tokens, h, 4 * h / t))  # down
    scores_product = device.product(block.sequence, block.sequence, width, batch)
    context_product = device.product(block.sequence, width, block.sequence, batch)
    # Elements of a tensor of full width (divided along the sequence, or whole on each member), of a
    # divided one, and of the attention matrices.
    whole = tokens * h / (t if block.sequence_parallel else 1)
    part = tokens * h / t
    scores = batch * block.sequence * block.sequence

    # Softmax reads and writes fp16 (4), dropout also writes a mask (5).
    core = scores_product + context_product + device.streaming(9 * scores)
    # Two norms (4 each) and two bias-dropout-adds (7 each) of full width; bias-GeLU over 4 h (16)
    # and the transposition of the context (4).
    forward = core + device.streaming(22 * whole + 20 * part)
    # Norms read gradient and input for each of input and weight gradients and write (10 each),
    # dropout reads gradient and mask and writes (5 each), residual sums (6 each), sums of two bias
    # gradients (2 each); GeLU (24), transposition (4), sums of the other biases (14). Softmax (6)
    # and dropout (5) of the attention matrices. Each product has two gradients.
    backward = (2 * (scores_product + context_product) +
                device.streaming(46 * whole + 42 * part + 11 * scores))
    for m, n, k in linears:
        forward += device.linear(m, n, k)
        backward += device.linear_backward(m, n, k, block.accumulation_bytes)
    return Times(forward, backward, core)


def embedding(block, device):
    """Look-up, position, dropout; the gradient of the matrix is dense."""
    whole = block.samples * block.sequence * block.hidden
    elements = block.vocabulary / block.tp * block.hidden
    # Look-up (4), sum with positions (6), dropout (5).
    forward = device.streaming(15 * whole)
    # Dropout (5), scatter (6) into a dense gradient, which is zeroed (2) and added to the sum.
    backward = device.streaming(11 * whole + (2 + block.accumulation_bytes) * elements)
    return Times(forward, backward)


def head(block, device):
    """Final norm, projection onto the vocabulary, cross-entropy in fp32."""
    tokens = block.samples * block.sequence
    columns = block.vocabulary / block.tp
    whole = tokens * block.hidden
    logits = tokens * columns
    # Norm (4); logits to fp32 (6), maximum (4), difference (8), exponential (8), sum (4), division
    # (8).
    forward = (device.linear(tokens, columns, block.hidden) +
               device.streaming(4 * whole + 38 * logits))
    # Norm (10); scaled probabilities (8), back to fp16 (6).
    backward = (device.linear_backward(tokens, columns, block.hidden, block.accumulation_bytes) +
                device.streaming(10 * whole + 14 * logits))
    return Times(forward, backward)


def optimizer(parameters, device):
    """Adam with fp32 master copies over `parameters` elements (a number or an array), with the
    copies, the check for overflow and the clipping of gradients around it: gradient to fp32 (6),
    unscaled with a check for overflow (8), its norm (4), clipping (8); Adam reads gradient, moments
    and master copy (16) and writes moments and master copy (12); copy to fp16 (6)."""
    return device.streaming((6 + 8 + 4 + 8 + 16 + 12 + 6) * parameters)

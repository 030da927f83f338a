#!/usr/bin/python3
"""Writes models/wide_resnet_*.yaml: the block lists of the Wide-ResNets that Metis trains.

    models/library/wide_resnet.py [FOLDER]

Sizes: Metis, Table 2, whose runtime is Alpa; their dimensions: Alpa's benchmark suite (image 224,
depth 50, 1024 classes, base channels and width factor per size), fp32. The network is ResNet-50
with bottlenecks whose 3x3 convolution is widened: 1x1 to f, 3x3 to f x width, 1x1 to 4f.
FLOPs: 2 x k^2 x C_in x C_out per output position. Kept for backward: inputs of convolutions,
normalizations and activations (in place). Under tensor parallelism the 3x3 is split by its output
channels and the last 1x1 by its input channels; the other convolutions are replicated, although the
cost model divides all FLOPs of a block.
"""

import sys
from pathlib import Path

SIZES = {"250m": (160, 2), "500m": (224, 2), "1b": (320, 2), "2b": (448, 2), "4b": (640, 2),
         "6.8b": (320, 16)}
STAGES = [3, 4, 6, 3]
IMAGE = 224
CLASSES = 1024


def tensor(name, elements, split_length=0):
    split = f", split_length: {split_length}" if split_length else ""
    return f"{{name: {name}, elements: {elements}{split}}}"


def bottleneck(channels_in, filters, width, size, stride):
    """One block on a `size` x `size` input; returns its fields."""
    wide, out = filters * width, 4 * filters
    before, after = size * size, (size // stride) ** 2
    projects = channels_in != out or stride != 1
    flops = 2 * (channels_in * filters * before + 9 * filters * wide * after + wide * out * after)
    tensors = [tensor("conv1", channels_in * filters), tensor("norm1", 2 * filters),
               tensor("conv2", 9 * filters * wide, wide), tensor("norm2", 2 * wide, wide),
               tensor("conv3", wide * out, wide), tensor("norm3", 2 * out)]
    replicated = channels_in * before + 2 * filters * before + out * after
    traffic = (channels_in + 5 * filters) * before + (5 * wide + 6 * out) * after
    if projects:
        flops += 2 * channels_in * out * after
        tensors += [tensor("projection", channels_in * out), tensor("norm_projection", 2 * out)]
        replicated += out * after
        traffic += channels_in * before + 3 * out * after
    return {"forward": f"{flops} FLOP", "parameters": tensors, "input": channels_in * before,
            "output": out * after, "kept_split": 2 * wide * after, "kept_replicated": replicated,
            "traffic": traffic, "tensor_collectives": 1}


def stem(channels):
    """7x7 convolution of stride 2, norm, activation, 3x3 pooling of stride 2."""
    half, quarter = (IMAGE // 2) ** 2, (IMAGE // 4) ** 2
    return {"forward": f"{2 * 49 * 3 * channels * half} FLOP",
            "parameters": [tensor("conv", 49 * 3 * channels), tensor("norm", 2 * channels)],
            "input": 0, "output": channels * quarter,
            "kept_replicated": 3 * IMAGE * IMAGE + 2 * channels * half,
            "traffic": 3 * IMAGE * IMAGE + 6 * channels * half + channels * quarter}


def classifier(channels, size):
    """Mean over positions, dense layer, loss."""
    return {"forward": f"{2 * channels * CLASSES} FLOP",
            "parameters": [tensor("dense", channels * CLASSES), tensor("dense.bias", CLASSES)],
            "input": channels * size * size, "output": 0,
            "kept_replicated": channels + 2 * CLASSES,
            "traffic": channels * size * size + 2 * channels + 2 * CLASSES}


def emit(kind, count, fields):
    lines = [f"  - kind: {kind}"]
    if count > 1:
        lines.append(f"    count: {count}")
    for key, value in fields.items():
        if key == "parameters":
            lines.append("    parameters:")
            lines += [f"      - {item}" for item in value]
        else:
            lines.append(f"    {key}: {value}")
    return lines


def model(name, channels, width):
    lines = ["# Written by models/library/wide_resnet.py, which explains the numbers.",
             "schema: orrery/model/1", f"name: wide_resnet_{name}",
             f'source: "Metis, Table 2 (Wide-ResNet {name.upper()}); Alpa benchmark suite: depth 50, '
             f'base channels {channels}, width factor {width}, image {IMAGE}"', "blocks:"]
    lines += emit("embedding", 1, stem(channels))
    channels_in, size = channels, IMAGE // 4
    for stage, blocks in enumerate(STAGES):
        filters, stride = channels << stage, 1 if stage == 0 else 2
        lines += emit("convolution", 1, bottleneck(channels_in, filters, width, size, stride))
        channels_in, size = 4 * filters, size // stride
        lines += emit("convolution", blocks - 1, bottleneck(channels_in, filters, width, size, 1))
    lines += emit("head", 1, classifier(channels_in, size))
    return "\n".join(lines) + "\n"


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "models"
    for name, (channels, width) in SIZES.items():
        (folder / f"wide_resnet_{name}.yaml").write_text(model(name, channels, width))


if __name__ == "__main__":
    main()

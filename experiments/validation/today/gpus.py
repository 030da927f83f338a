"""Types of GPU of the published tables: name in the library, and the links between GPUs of the
clusters that the tables were measured on. What their kernels reach is in the library's profile
`today`, with shares that the studies replace by their own."""

from dataclasses import dataclass

import orrery


@dataclass(frozen=True)
class Gpu:
    library: str  # name in models/library/gpus.yaml
    scale_up: str  # link classes
    network: str
    domain: int = 8  # GPUs that share the scale-up links
    per_nic: int = 1  # GPUs that share a network adapter


GPUS = {
    # Jean Zay: four GPUs and four Omni-Path adapters of 100 Gb/s on a node.
    "V100-JZ": Gpu("V100-32GB", "nvlink2", "infiniband-100", domain=4),
    "A100": Gpu("A100-80GB", "nvlink3", "infiniband-200"),
    # Jean Zay: four Omni-Path adapters of 100 Gb/s on a node of eight.
    "A100-JZ": Gpu("A100-80GB", "nvlink3", "infiniband-100", per_nic=2),
    "A100-40GB": Gpu("A100-40GB", "nvlink3", "infiniband-200"),
    "H100": Gpu("H100-80GB", "nvlink4", "infiniband-400"),
    "H200": Gpu("H200-141GB", "nvlink4", "infiniband-400"),
    "B200": Gpu("B200-180GB", "nvlink5", "infiniband-400"),
    "B300": Gpu("B300-288GB", "nvlink5", "infiniband-800"),
    "GB200": Gpu("GB200-186GB", "nvlink5", "infiniband-400", 64),
    "GB300": Gpu("GB300-288GB", "nvlink5", "infiniband-800", 64),
}
KERNELS = {kernels.gpu: kernels for kernels in orrery.load_profile("today").kernels}


def kernels_of(gpu, parameters):
    """orrery.Kernels of one GPU of this name with the shares that the parameters say."""
    known = KERNELS[GPUS[gpu].library]
    products = [product.replace(share=parameters["products" if product.dtype == "bf16"
                                                 else "low_products"])
                for product in known.products]
    return orrery.Kernels(
        known.replace(products=products, attention=parameters["attention"],
                      memory=parameters["memory"], gap=parameters["gap"],
                      unaligned=parameters["unaligned"], routing=parameters["routing"]),
        orrery.library()["gpus"][known.gpu].memory_bandwidth)

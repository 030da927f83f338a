"""Training runs on today's clusters, as published tables give them: a run is a model, how it is
distributed over GPUs, what its software does, and the measured time of a step, if there is one.

What a row says is input and is never fitted. What is fitted are the few numbers of DECLARED, which
hold for all rows of a study, GPU type by GPU type or software by software as the study says."""

from dataclasses import dataclass, field

from today.gpus import GPUS


@dataclass(frozen=True)
class Model:
    """A model with what the kernels need to know beyond a ModelShape."""
    shape: object  # orrery.ModelShape, for parameters and messages
    layers: tuple  # kinds of layers, orrery.KernelLayer
    order: tuple = ()  # of each layer its kind; none: all are of the first
    # Tokens beyond the next that are predicted in training, each by a projection, a layer and a
    # head of its own at the end [DeepSeek-AI 2024, DeepSeek-V3 Technical Report, 2.2].
    predicted: int = 0
    layouts: tuple = ()  # layers of each chunk, where the software does not divide them evenly

    def kind(self, number):
        """Of the layer with this number, from 0."""
        return self.order[number] if self.order else 0


@dataclass
class Run:
    """One row."""
    id: str
    set: str  # rows whose errors are counted together
    model: Model
    gpu: str  # of GPUS
    gpus: int
    sequence: int  # tokens
    global_batch: int  # sequences
    micro_batch: int = 1  # sequences
    tp: int = 1
    pp: int = 1
    virtual_stages: int = 1
    cp: int = 1
    ep: int = 1
    whole_experts: bool = False  # spread over tensor-parallel ranks too, not cut into tp parts
    precision: str = "bf16"  # of products: bf16, fp8, fp4
    recompute: str = "none"  # of whole layers, "selective" or "full"
    per_op: bool = False  # selective recomputation as PyTorch's policy by op (Prices.by_op)
    fused: bool = True  # kernels between products; False: PyTorch without a compiler
    sharded: str = "optimizer"  # over replicas: "none", "optimizer" (ZeRO-1), "all" (ZeRO-3, FSDP)
    sequence_parallel: bool = True  # where tensor parallel
    ends_count: bool = False  # embedding and head count as a layer each where layers are divided
    weight_bytes: float = 2.0  # of a weight that data-parallel gathers move
    gradient_bytes: float = 2.0  # of a gradient that data-parallel sums move
    frozen: bool = False  # LoRA: weights have no gradients
    generation: str = ""  # of the software
    measured: float | None = None  # seconds of a step
    fitted: bool = False
    scored: bool = True
    parameters: dict = field(default_factory=dict)  # of another study, in place of the declared
    facts: dict = field(default_factory=dict)  # parameters that the row itself settles
    notes: dict = field(default_factory=dict)

    @property
    def dp(self):
        return self.gpus // (self.tp * self.pp * self.cp)

    @property
    def micro_batches(self):
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def chunks(self):
        return self.pp * self.virtual_stages

    def use(self):
        if self.measured is None:
            return "unmeasured"
        if self.fitted:
            return "fitted"
        return "scored" if self.scored else "unscored"

    def problems(self):
        """What does not fit together, in words."""
        found = []
        if self.gpu not in GPUS:
            found.append(f"GPU {self.gpu} is not known")
        if self.gpus % (self.tp * self.pp * self.cp) != 0:
            found.append(f"{self.gpus} GPUs are no multiple of tp {self.tp} x pp {self.pp} x "
                         f"cp {self.cp}")
        elif self.global_batch % (self.dp * self.micro_batch) != 0:
            found.append(f"batch {self.global_batch} is no multiple of dp {self.dp} x micro-batch "
                         f"{self.micro_batch}")
        elif self.dp % self.ep != 0 and self.ep % (self.dp * self.cp) != 0:
            found.append(f"dp {self.dp} is no multiple of ep {self.ep}")
        return found


def chunk_layers(run):
    """Layers of each chunk along the model: equal, or, where they do not divide, one more in the
    first ones. Where the ends count as layers the first and last chunk have one less."""
    for layout in run.model.layouts:
        if len(layout) == run.chunks:
            return list(layout)
    layers = run.model.shape.layers + (2 if run.ends_count else 0)
    base, more = divmod(layers, run.chunks)
    counts = [base + (1 if place < more else 0) for place in range(run.chunks)]
    if run.ends_count:
        counts[0] -= 1
        counts[-1] -= 1
    return counts


# Parameters with the values that are taken where nothing is fitted.
DECLARED = {
    "products": 0.9,  # share of the best measured matrix product that products reach
    "low_products": 0.85,  # the same in fp8 and fp4
    "attention": 0.7,  # share of the best measured bf16 product that fused attention reaches
    "memory": 0.8,  # share of memory bandwidth that memory-bound kernels reach
    "gap": 3e-6,  # s between two kernels
    "exposed": 0.5,  # share of tensor-parallel collectives that products do not hide
    "exposed_context": 0.05,  # of context parallelism's, where attention is long enough
    "exposed_experts": 1.0,  # the same of the experts' all-to-all
    "unaligned": 0.35,  # rate of products over rows that are no multiples of 16 bytes
    "routing": 3.0,  # traffic of sorting tokens by expert and back over the least there is
    "host": 1e-3,  # s that the host needs to launch one pass of a layer of experts
    "exposed_gradients": 0.1,  # compute time lost for each second of hidden data-parallel traffic
    "exposed_gathers": 0.1,  # of gathers of sharded weights, where the passes are long enough
    "spread": 0.01,  # standard deviation of the speed of GPUs of one type
    "step": 0.02,  # s outside of kernels in each step
    "slowdown": 1.0,  # of compute: what a later software generation is faster by
}
UNITS = {"step": "s", "gap": "s", "host": "s"}
RANGES = {
    "products": (0.4, 1.1, ()),
    "low_products": (0.3, 1.1, ()),
    "attention": (0.1, 1.1, ()),
    "memory": (0.3, 1.0, ()),
    "gap": (5e-7, 3e-5, ()),
    "exposed": (0.05, 1.5, ()),
    "exposed_context": (0.02, 1.5, ()),
    "exposed_experts": (0.05, 3.0, ()),
    "unaligned": (0.05, 1.0, ()),
    "routing": (0.5, 100.0, (10.0,)),
    "host": (1e-4, 5e-2, (3e-3, 1e-2)),
    "exposed_gradients": (0.01, 1.0, ()),
    "exposed_gathers": (0.01, 1.0, ()),
    "spread": (1e-3, 0.05, ()),
    "step": (1e-3, 1.0, (0.05,)),
    "slowdown": (0.6, 2.0, ()),
}

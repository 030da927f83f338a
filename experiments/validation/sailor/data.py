"""Models, clusters and plans of the public Sailor measurements (`measurements/`, whose README has
units and doubts). measured.json has plans with measured values, unmeasured_plans.json plans to
predict. Times in seconds, sizes in bytes."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import orrery


@dataclass
class Model:
    layers: int  # transformer layers; the profile counts embedding and last layer as well
    hidden: int
    ffn: int
    heads: int
    head_dim: int
    sequence: int
    positions: int
    vocabulary: int  # before padding

    def padded_vocabulary(self, tensor_parallel):
        """Megatron pads the vocabulary to a multiple of 128 x degree."""
        multiple = 128 * tensor_parallel
        return (self.vocabulary + multiple - 1) // multiple * multiple


@dataclass
class Node:
    gpus: int
    memory: float  # of one GPU


@dataclass
class Values:
    """Time and memory by a measurement or by another simulator."""
    iteration_s: float | None = None
    peak_memory_bytes: float | None = None


@dataclass
class Replica:
    """One tensor-parallel group on a node of its own."""
    gpu: str
    tensor_parallel: int


@dataclass
class Stage:
    first_layer: int  # inclusive, numbered as the profiles: 0 is the embedding
    last_layer: int
    replicas: list[Replica]  # in rank order


@dataclass
class Plan:
    id: str
    cluster: str  # gh200 or rtx
    model: str
    micro_batch: int  # sequences
    global_batch: int
    micro_batches: int  # of each pipeline
    data_parallel: int
    stages: list[Stage]
    score: bool  # False: the measured time is doubtful
    measured: Values
    earlier_run: Values  # the same plan measured once before
    others: dict[str, Values]  # estimates of other simulators, by name

    @property
    def tensor_parallel(self):
        return self.stages[0].replicas[0].tensor_parallel

    @property
    def set(self):
        """"gh200 OPT-350", "gh200 GPT-Neo-2.7", "rtx OPT-350": cases whose errors count
        together."""
        return f"{self.cluster} {self.model}"

    @property
    def on_gh200(self):
        return self.cluster == "gh200"


@dataclass
class Data:
    tables: orrery.SailorTables
    models: dict[str, Model] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)  # by GPU type
    plans: list[Plan] = field(default_factory=list)  # measured.json, then unmeasured_plans.json

    def layer_memory(self, model, tensor_parallel, layer):
        """The row of layer_memory.csv."""
        for row in self.tables.layer_memory:
            if (row.model == model and row.tensor_parallel == tensor_parallel and
                    row.first_layer <= layer <= row.last_layer):
                return row
        raise LookupError(f"layer_memory.csv has no layer {layer} of {model} with degree "
                          f"{tensor_parallel}")

    def bandwidth(self, sender, receiver, sender_pairs, receiver_pairs, inter_node=True):
        """The row of network_bandwidth.csv; None where there is none."""
        for row in self.tables.bandwidths:
            if (row.inter_node == inter_node and row.sender_gpu == sender and
                    row.receiver_gpu == receiver and row.sender_pairs == sender_pairs and
                    row.receiver_pairs == receiver_pairs):
                return row
        return None


class Reader:
    """Cells of a JSON object; what is missing or of a wrong kind is a problem at its place."""

    def __init__(self, value, fail):
        self.value = value if isinstance(value, dict) else {}
        self.fail = fail

    def get(self, key, good, what):
        value = self.value.get(key)
        if good(value):
            return value
        self.fail(f"'{key}' must be {what}")
        return None

    def text(self, key):
        return self.get(key, lambda value: isinstance(value, str), "text") or ""

    def whole(self, key, least=1):
        value = self.get(key, lambda value: isinstance(value, int) and least <= value <= 2**24,
                         f"a whole number from {least} to {2**24}")
        return least if value is None else value

    def positive(self, key):
        value = self.get(key, lambda value: isinstance(value, (int, float)) and value > 0,
                         "a positive number")
        return float(value or 1)

    def objects(self, key):
        """Readers of a list with entries."""
        values = self.get(key, lambda value: isinstance(value, list) and value,
                          "a list with entries")
        return [Reader(value, self.fail) for value in values or []]

    def values(self):
        """Null and absent values stay absent."""
        return Values(**{key: self.positive(key) for key in ("iteration_s", "peak_memory_bytes")
                         if self.value.get(key) is not None})

    def below(self, key):
        return Reader(self.value.get(key), self.fail)


def load(path, problems):
    """The tree and a function that adds problems at the first place of a text in the file."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        problems.add(path, error.lineno, error.colno, error.msg)
        return {}, None
    except (OSError, UnicodeDecodeError) as error:
        problems.add(path, 0, 0, f"cannot be read: {error}")
        return {}, None

    def fail_at(mark):
        at = max(text.find(json.dumps(mark)), 0)
        line = text.count("\n", 0, at) + 1
        column = at - text.rfind("\n", 0, at)
        return lambda what: problems.add(path, line, column, f"{mark}: {what}")

    return tree, fail_at


def read_plan(reader, data):
    shapes = reader.objects("pipelines")
    if len(shapes) > 1:
        reader.fail("more than one pipeline shape")
    stages = [Stage(stage.whole("first_layer", 0), stage.whole("last_layer", 0),
                    [Replica(run.text("gpu"), run.whole("tp")) for run in stage.objects("replicas")
                     for _ in range(run.whole("count"))])
              for shape in shapes[:1] for stage in shape.objects("stages")]
    return Plan(reader.text("id"), reader.text("cluster"), reader.text("model"),
                reader.whole("micro_batch"), reader.whole("global_batch"),
                reader.whole("micro_batches_per_pipeline"),
                shapes[0].whole("data_parallel") if shapes else 1, stages,
                reader.value.get("score", True), reader.below("measured").values(),
                reader.below("earlier_run").values(),
                {name: reader.below("other_simulators").below(name).values()
                 for name in reader.value.get("other_simulators") or {}})


def check_plan(plan, data, fail):
    """What the plan says must fit together; lowering relies on it."""
    if plan.model not in data.models:
        fail(f"unknown model '{plan.model}'")
        return
    if plan.global_batch != plan.micro_batch * plan.micro_batches * plan.data_parallel:
        fail("micro-batches do not add up to the global batch")
    following = 0
    for stage in plan.stages:
        if stage.first_layer != following:
            fail(f"layer {following} is missing or twice")
        following = stage.last_layer + 1
        if len(stage.replicas) != plan.data_parallel:
            fail(f"a stage has {len(stage.replicas)} replicas, not {plan.data_parallel}")
        for replica in stage.replicas:
            node = data.nodes.get(replica.gpu)
            if node is None:
                fail(f"unknown GPU type '{replica.gpu}'")
            elif replica.tensor_parallel > node.gpus:
                fail(f"a node has {node.gpus} GPUs, not {replica.tensor_parallel}")
            if replica.tensor_parallel != plan.tensor_parallel:
                fail("tensor-parallel degrees differ, and with them the padded vocabulary")
    layers = data.models[plan.model].layers + 2
    if following != layers:
        fail(f"has {following} layers, the model {layers}")


def read_models(path, problems):
    tree, fail_at = load(path, problems)
    models = {}
    for name, value in (tree.get("models") or {}).items():
        reader = Reader(value, fail_at(name))
        hidden, heads = reader.whole("hidden"), reader.whole("heads")
        head_dim = reader.whole("head_dim") if "head_dim" in value else hidden // heads
        models[name] = Model(reader.whole("transformer_layers"), hidden, reader.whole("ffn_hidden"),
                             heads, head_dim, reader.whole("sequence"),
                             reader.whole("positions", 0), reader.whole("vocab_unpadded"))
    return models


def read_nodes(path, problems):
    tree, fail_at = load(path, problems)
    nodes = {}
    for name, cluster in (tree.get("clusters") or {}).items():
        types = cluster.get("node_types") or {cluster.get("gpu", ""): cluster}
        for gpu, value in types.items():
            reader = Reader(value, fail_at(name))
            nodes[gpu] = Node(reader.whole("gpus_per_node"),
                              reader.positive("memory_bytes_per_gpu"))
    return nodes


def read(folder, problems):
    """All files of the folder. What is wrong goes to `problems`; then the result is incomplete."""
    folder = Path(folder)
    data = Data(orrery.read_sailor_tables(str(folder)),
                read_models(folder / "models.json", problems),
                read_nodes(folder / "clusters.json", problems))
    if problems.found:
        return data
    for name in ("measured.json", "unmeasured_plans.json"):
        tree, fail_at = load(folder / name, problems)
        for value in tree.get("plans") or []:
            fail = fail_at(value.get("id", ""))
            before = len(problems.found)
            plan = read_plan(Reader(value, fail), data)
            if len(problems.found) == before:
                check_plan(plan, data, fail)
            data.plans.append(plan)
    return data

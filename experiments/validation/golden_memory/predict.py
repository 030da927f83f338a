#!/usr/bin/python3
"""Predicts the peak memory that Megatron-LM's functional tests record: bytes of tensors on the rank
that logs, one of the last pipeline stage (README.md). `predict.py --help`.

States and activations are those of models/cost/memory.h; what these do not know (scores of
attention that is not fused, latent attention, logits as this software holds them) is counted
here."""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import errors  # noqa: E402
import orrery  # noqa: E402
import tables  # noqa: E402
from today import memory  # noqa: E402

NAME, METRIC, TARGET = "golden_memory", "peak_memory_bytes", 0.05
LARGE = 1e9  # parameters from which a model is scored
DISAGREE = 0.2
FAMILIES = ("gpt", "moe", "mixtral")
# Vocabularies of tokenizers that rows name. [their published files]
VOCABULARIES = {"vocab.json": 50257, "nemotron_2_256k.model": 256000, "tokenizer.model": 32000,
                "": 50257}
# GPUs where a row does not say (assumed): of a test a node, of a release what its plan needs, at
# least eight nodes.
GPUS_OF_A_TEST, GPUS_OF_A_RELEASE = 8, 64
# Latent attention of all rows that have it, as their arguments say: ranks of queries, of keys and
# values, and widths of a head's rotated part, of the rest and of a value.
Q_RANK, KV_RANK, ROTATED, PLAIN, VALUE = 1536, 512, 64, 128, 128


@dataclass
class Case:
    """One row."""
    id: str
    shape: object  # orrery.ModelShape
    dense: object  # the shape of layers without experts
    dense_layers: int
    gpus: int
    tp: int
    pp: int
    cp: int
    ep: int
    expert_tp: int
    chunks: list  # of the last stage: layers of each, first to last along the model
    micro_batch: int
    sequence: int
    flags: dict
    mtp: int = 0
    shared_ffn: int = 0
    allocated: float | None = None
    measured: float | None = None
    plan: tuple = ()  # what the row says of model and plan: of no two tests the same
    scored: bool = True
    parts: memory.Parts | None = None

    @property
    def large(self):
        return self.parameters >= LARGE

    @property
    def parameters(self):
        """Of the model."""
        loaded = orrery.load_model(self.shape, job_of(self))
        return float(orrery.parameters(loaded))

    @property
    def fitted(self):
        """Small, and its attention is not left to the software."""
        return (self.measured is not None and not self.large and
                (unfused(self) or bool(self.flags["attention"])))

    @property
    def dp(self):
        return max(1, self.gpus // (self.tp * self.pp * self.cp))

    @property
    def tokens(self):
        return float(self.micro_batch) * self.sequence / self.cp


def layout_layers(text):
    """Layers of each chunk of a layout as Megatron-LM writes them: E embedding, t layer, m further
    predicted token, L loss, | between chunks, *n repetition."""
    while "*" in text:
        text = re.sub(r"(?:\(([^()]*)\)|([A-Za-z]))\*(\d+)",
                      lambda found: (found[1] or found[2]) * int(found[3]), text, count=1)
    return [chunk.count("t") for chunk in text.replace(",", "").split("|")]


def last_stage(row, layers, pp):
    """Layers of the chunks of the last stage."""
    if row.text("layout"):
        chunks = layout_layers(row.text("layout"))
    else:
        per = row.number("layers_per_chunk")
        count = (row.count("virtual_stages") * pp if row.text("virtual_stages") else
                 layers // int(per) if per and pp > 1 else pp)
        ends = 2 if "account_for_embedding_loss" in row.text("test_case") else 0
        chunks = [(layers + ends) // count] * count
        if ends:
            chunks[0] -= 1
            chunks[-1] -= 1
    if sum(chunks) != layers or len(chunks) % pp != 0:
        row.problem("layers", f"{layers} layers in chunks of {chunks} on {pp} stages")
    return chunks[pp - 1::pp]


def vocabulary(row, tp):
    """Padded as Megatron-LM pads it, to a multiple of 128 for each tensor-parallel rank."""
    own = row.number("vocabulary") or VOCABULARIES.get(row.text("tokenizer"), VOCABULARIES[""])
    return -(-int(own) // (128 * tp)) * 128 * tp


def predictable(row):
    return (row.text("model") in FAMILIES and not row.text("unusual") and not row.text("fsdp") and
            row.text("precision") in ("bf16", "fp16") and row.text("recompute") != "selective")


def read_row(row):
    def optional(column, other):
        return row.count(column) if row.text(column) else other

    tp, pp = row.count("tensor_parallel"), row.count("pipeline_parallel")
    hidden, heads, layers = row.count("hidden"), row.count("heads"), row.count("layers")
    ffn, experts = optional("ffn", 4 * hidden), optional("experts", 0)
    latent = bool(row.text("latent"))
    width = PLAIN if latent else hidden // heads
    swiglu = bool(row.text("swiglu"))
    dense = orrery.load_shape("llama3_8b" if swiglu else "gpt3_175b").replace(
        name=row.text("id"), layers=layers, hidden=hidden, heads=heads,
        kv_heads=heads if latent else optional("kv_heads", heads), head_dim=width, ffn=ffn,
        vocabulary=vocabulary(row, tp), positions=optional("positions", 0),
        # Which norm decides whether dropout has masks in models/cost.
        normalization="rms_norm" if row.text("dropout") == "0" else "layer_norm",
        biases=bool(row.text("biases")), tied_embeddings=not row.text("untied"))
    shape = dense
    if experts:
        shape = dense.replace(experts=experts, top_k=optional("top_k", 2),
                              ffn=optional("expert_ffn", ffn))
    flags = {name: row.text(name) for name in (
        "dropout", "transformer", "attention", "loss_fused", "latent", "distributed_optimizer",
        "sequence_parallel", "recompute", "precision", "swiglu")}
    ep = row.count("expert_parallel")
    case = Case(id=row.text("id"), shape=shape, dense=dense,
                dense_layers=optional("dense_layers", 0) if experts else layers,
                gpus=optional("gpus", GPUS_OF_A_RELEASE if "release" in row.text("test_case")
                              else GPUS_OF_A_TEST), tp=tp, pp=pp,
                cp=row.count("context_parallel"), ep=ep,
                expert_tp=optional("expert_tensor_parallel", tp),
                chunks=last_stage(row, layers, pp), micro_batch=row.count("micro_batch"),
                sequence=row.count("sequence"), flags=flags, mtp=optional("mtp_layers", 0),
                shared_ffn=optional("shared_ffn", 0), allocated=row.number("allocated_bytes"),
                measured=row.number("peak_bytes"))
    case.gpus = max(case.gpus, tp * pp * case.cp, pp * ep * case.expert_tp)
    case.plan = tuple(row.text(name) for name in row.table.header if name not in (
        "id", "test_case", "platform", "gpus", "first_bytes", "allocated_bytes", "peak_bytes"))
    return case


def job_of(case):
    """bf16 keeps sums of gradients in fp32; fp16 has gradients of its own."""
    gradient = 4 if case.flags["precision"] == "bf16" else 2
    return orrery.Job(global_batch=case.micro_batch * case.dp, sequence_length=case.sequence,
                      dtype="bf16", state_bytes=orrery.StateBytes(
                          weight=2, gradient=gradient, master=4, moments=8))


def segment(case, shape, first, last):
    """Memory of blocks of a shape on a device of the last stage."""
    cluster = orrery.load_cluster({
        "name": "one", "nodes": [{"name": "n", "count": 1, "gpus": {
            "type": "H100-80GB", "count": case.tp * case.cp}, "domains": {"link": "nvlink4"}}]})
    training = orrery.Training(cluster, shape, job_of(case))
    sequence = ("ring" if case.cp > 1 else
                "megatron" if case.flags["sequence_parallel"] and case.tp > 1 else "none")
    group = orrery.Group(devices=list(range(case.tp * case.cp)), tensor_parallel=case.tp,
                         sequence=sequence, sequence_degree=case.cp, samples=case.micro_batch)
    expert_parallel = max(1, case.ep * case.expert_tp // case.tp) if shape.experts else 1
    made = orrery.Segment(first_block=first, last_block=last, groups=[group],
                          recompute="full" if case.flags["recompute"] == "full" else "none",
                          zero=orrery.Zero(stage=1 if case.flags["distributed_optimizer"] else 0),
                          expert_parallel=expert_parallel)
    return training.segment_memory(made, group, case.dp * case.cp)


def states(one):
    return one.parameters + one.gradients + one.optimizer_states


def unfused(case):
    """Where a row leaves the choice to the software, it is taken for fused."""
    return case.flags["transformer"] == "local" or case.flags["attention"] in ("unfused", "local")


def beyond(case, shape):
    """States and activations of one layer that models/cost does not count."""
    matrices = 3 if case.flags["swiglu"] else 2
    whole = 0.0  # parameters of this rank
    kept = 0.0
    if case.flags["latent"]:
        hidden, heads = shape.hidden, shape.heads
        own = (hidden * (Q_RANK + KV_RANK + ROTATED) +
               (Q_RANK * heads * (PLAIN + ROTATED) + KV_RANK * heads * (PLAIN + VALUE)) / case.tp)
        whole += own - 3 * hidden * heads * PLAIN / case.tp
        # Queries, and keys with the rotated part copied to each head; both ranks and their norms.
        kept += 2 * case.tokens * (heads * (2 * ROTATED + PLAIN) + 2 * (Q_RANK + KV_RANK)) / case.tp
    if case.shared_ffn and shape.experts:
        whole += matrices * shape.hidden * case.shared_ffn / case.tp
        kept += 2 * case.tokens * matrices * case.shared_ffn / case.tp
    if unfused(case):
        # Softmax, dropout mask and what dropout gives. [Korthikanti et al. 2022, 4.1]
        pairs = case.micro_batch * shape.heads / case.tp * float(case.sequence)**2 / case.cp
        kept += (5.0 if case.flags["dropout"] != "0" else 2.0) * pairs
    job = job_of(case).state_bytes
    shards = case.dp * case.cp if case.flags["distributed_optimizer"] else 1
    added = whole * (job.weight + job.gradient + (job.master + job.moments) / shards)
    return added, kept


def count(case):
    """Of a rank of the last stage: in 1F1B it holds one micro-batch, interleaved as many of all but
    its last chunk as there are stages."""
    layers = case.shape.layers
    ends = segment(case, case.dense, layers + 1, layers + 1)
    total = states(ends)
    kept = ends.activations_per_micro_batch
    if case.pp == 1:
        whole = segment(case, case.dense, 0, layers + 1)
        inner = segment(case, case.dense, 1, layers)
        total = states(whole) - states(inner)
        kept = whole.activations_per_micro_batch - inner.activations_per_micro_batch
    if case.mtp and case.pp > 1:  # the embedding of what is predicted further
        total += states(segment(case, case.dense.replace(positions=0), 0, 0))
    full = case.flags["recompute"] == "full"
    kinds = {}
    for shape in (case.shape, case.dense):
        one = segment(case, shape, 1, 1)
        kinds[shape.experts > 0] = one, beyond(case, shape)
    for place, number in enumerate(case.chunks):
        flying = 1 if place + 1 == len(case.chunks) else case.pp
        for layer in range(number + (case.mtp if place + 1 == len(case.chunks) else 0)):
            first = place == 0 and case.pp == 1 and layer < case.dense_layers
            one, more = kinds[case.shape.experts > 0 and not first]
            total += states(one) + more[0]
            kept += flying * (one.activations_per_micro_batch + (0.0 if full else more[1]))
    # A head for each token that is predicted. Logits in 16 bits and the softmax of the loss in
    # fp32; fused losses do not work in place and hold another copy.
    elements = case.tokens * case.shape.vocabulary / case.tp * (1 + case.mtp)
    logits = elements * (10.0 if case.flags["loss_fused"] else 6.0)
    transient = max(one.recomputed + more[1] if full else 0.0 for one, more in kinds.values())
    return memory.Parts(total, kept + logits + transient)


def read(folder, problems):
    cases, left = [], []
    for row in tables.Table(f"{folder}/golden_memory.csv", ["id", "hidden", "peak_bytes"],
                            problems):
        if predictable(row):
            cases.append(read_row(row))
        else:
            left.append(row.text("id"))
    return cases, left


def mark_doubtful(cases):
    """Rows of one model and plan should agree: where what they hold beyond states differs by more
    than a fifth, some stand under another's name, and none of them is scored."""
    alike = {}
    for case in cases:
        if case.measured and case.large:
            alike.setdefault(case.plan, []).append(case)
    for group in alike.values():
        beyond_states = [case.measured - case.allocated for case in group]
        if max(beyond_states) > (1 + DISAGREE) * min(beyond_states):
            for case in group:
                case.scored = False


def rows_of(cases, constant, slope):
    return [errors.Row(case.id, "large" if case.large else "small", METRIC,
                       case.parts.states + constant + slope * case.parts.activations,
                       case.measured, case.scored, case.fitted) for case in cases]


def line(name, rows, target=None):
    return errors.summarize(name, METRIC, [row.error() for row in rows], [row.id for row in rows],
                            target)


def pairs_of(cases):
    return [(case.parts.activations, case.measured - case.parts.states) for case in cases]


def leave_one_out(fitted, plain):
    """Rows of the fit, each predicted with what the other plans give."""
    found = []
    for plan in dict.fromkeys(case.plan for case in fitted):
        constant, slope = memory.theil_sen(pairs_of(
            [case for case in fitted if case.plan != plan]))
        found += rows_of([case for case in fitted if case.plan == plan], constant, slope)
    assert len(found) == len(plain)
    return found


def main():
    parser = argparse.ArgumentParser(description="Predicts peak memory; says how far off")
    parser.add_argument("--data", default=str(tables.measurements(NAME)))
    parser.add_argument("--out", default=f"results/validation/{NAME}")
    options = parser.parse_args()
    problems = tables.Problems()
    cases, left = read(options.data, problems)
    problems.raise_any()
    for case in cases:
        case.parts = count(case)
    mark_doubtful(cases)
    fitted = [case for case in cases if case.fitted]
    assert errors.enough_rows(2, len(fitted))
    constant, slope = memory.theil_sen(pairs_of(fitted))
    rows = rows_of(cases, constant, slope)
    plain = [row for row in rows_of(cases, 0.0, 1.0) if row.measured]
    large = [row for row in rows if row.measured and row.set == "large"]
    small = [row for row in rows if row.measured and row.set == "small" and not row.fitted]
    in_fit = [row for row in rows if row.fitted]
    out = leave_one_out(fitted, in_fit)
    table = [line("1 B parameters and more", [row for row in large if row.scored], TARGET),
             line("the same with rows that contradict each other", large),
             line("smaller, attention left to the software", small),
             line("fitting rows, in the fit", in_fit),
             line("fitting rows, leave one plan out", out),
             line("nothing fitted, 1 B parameters and more",
                  [row for row in plain if row.set == "large" and row.scored])]
    parameters = [errors.Parameter(name, unit, value, [case.id for case in fitted], table[4].mean)
                  for name, unit, value in (("constant", "bytes", constant),
                                            ("activations", "", slope))]
    for file, text in (("parameters.csv", errors.parameters_csv(NAME, parameters)),
                       ("predictions.csv", errors.predictions_csv(rows)),
                       ("errors.csv", errors.errors_csv(NAME, table))):
        tables.write(options.out, file, text)
    print(f"{constant / 1e9:.3f} GB + states + {slope:.3f} x activations, on {len(fitted)} rows")
    print(f"\nerrors in per cent\n{errors.error_table(table)}")
    print(f"{'id':<12} {'GB: states':>10} {'activations':>11} {'measured':>9} {'predicted':>9} "
          "error")
    for case, row in zip(cases, rows):
        if row.measured and case.large:
            print(f"{case.id:<12} {case.parts.states / 1e9:>10.2f} "
                  f"{case.parts.activations / 1e9:>11.2f} {row.measured / 1e9:>9.2f} "
                  f"{row.predicted / 1e9:>9.2f} {100 * row.error():>+6.1f}"
                  f"{'' if row.scored else ' (not scored)'}")
    print(f"\n{len(cases)} rows predicted, {len(left)} not (README.md); written to {options.out}")
    return 0


if __name__ == "__main__":
    tables.run(main)

"""notes.md: what is measured, what is assumed, and the misses, with the figures of the run. The
words are in notes_template.md."""

from pathlib import Path

from errors import percent

TEMPLATE = Path(__file__).with_name("notes_template.md")


def table(header, rows):
    """Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    text = ""
    for cells in lines:
        text += f"|{'|'.join(cells)}|\n" if cells[0] == "---" else f"| {' | '.join(cells)} |\n"
    return text


def error_lines(lines):
    def optional(value):
        return "" if value is None else percent(value)

    return table(
        ["set", "metric", "rows", "mean %", "median %", "max %", "bias %", "target %"],
        [[line.set, line.metric, str(line.rows), percent(line.mean), percent(line.median),
          percent(line.max), f"{100 * line.bias:+.1f}", optional(line.target)]
         for line in lines if line.rows])


def residuals(report):
    """Measured minus predicted time of each measured plan, and per micro-batch."""
    rows = []
    for row in report.rows:
        plan, predicted = row.plan, row.prediction.iteration
        measured = plan.measured.iteration_s
        if measured is None:
            continue
        rows.append([
            plan.id + ("" if plan.score else " (not scored)"), f"{measured:.4g}",
            f"{predicted:.4g}", f"{100 * (predicted / measured - 1):+.1f}",
            f"{1000 * (measured - predicted) / plan.micro_batches:+.2f}",
            "" if row.unsliced is None else f"{1000 * row.unsliced:.2f}",
            f"{row.prediction.overlapped:.4g}"])
    return table(["plan", "measured s", "predicted s", "error %",
                  "measured - predicted, ms per micro-batch",
                  "whole activations would add, ms per micro-batch", "transfers beside passes s"],
                 rows)


def memory(report):
    """Measured peak minus what the simulator counts."""
    rows = []
    for row in report.rows:
        measured, held = row.plan.measured.peak_memory_bytes, row.prediction.held
        if measured is not None:
            error = 100 * ((held + report.overhead.of(row.prediction)) / measured - 1)
            rows.append([row.plan.id, f"{measured / 1e9:.2f}", f"{held / 1e9:.2f}",
                         f"{(measured - held) / 1e9:.2f}", f"{error:+.1f}"])
    return table(["plan", "measured GB", "simulated GB", "beyond GB", "predicted, error %"], rows)


def heads(report, gpu="GH-96", degree=4):
    """Ratios of Profiles.check_heads by micro-batch size, of one GPU type and degree."""
    sizes = {}
    for head, ratio in report.heads:
        if head.gpu == gpu and head.tensor_parallel == degree:
            sizes.setdefault(head.micro_batch_size, {})[head.pass_] = ratio
    return table(["micro-batch", "forward", "backward"],
                 [[str(size), f"{found.get('forward', 0):.2f}", f"{found.get('backward', 0):.2f}"]
                  for size, found in sorted(sizes.items())])


def used_entries(report):
    used = {line for row in report.rows for line in row.prediction.used}
    profiled = {line for line in used if line.startswith("profile:")}
    return (f"{len(profiled)} entries of the profile, and\n\n" +
            "".join(f"- {line}\n" for line in sorted(used - profiled)))


def text_of(report):
    overhead = report.overhead
    return TEMPLATE.read_text(encoding="utf-8").format(
        main=error_lines(report.main), others=error_lines(report.others),
        used=used_entries(report), parameter=overhead.constant.name,
        gigabytes=overhead.constant.value / 1e9, slope=overhead.slope.value,
        count=len(overhead.constant.fitted_on), fitted_on=", ".join(overhead.constant.fitted_on),
        slot=report.slot.name, milliseconds=1e3 * report.slot.value,
        slot_out=percent(report.slot.leave_one_out),
        leave_one_out=percent(overhead.constant.leave_one_out), residuals=residuals(report),
        groups=error_lines(report.groups), overlapped=error_lines(report.overlapped),
        memory=memory(report), heads=heads(report))

#!/usr/bin/python3
"""What robust planning gains over the fastest plan with the best policy for it: reads result.json of
each case's run, writes table.md and draws tokens per dollar of both, trace by trace apart."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "experiments"))
import style  # noqa: E402
from style import plt  # noqa: E402

NAMES = {"spot_gcp_mixed": "Google's,\n64 A100,\n80 V100", "spot_bamboo": "AWS's p3,\n32 V100",
         "failures": "failures,\n8 A100,\n8 H800", "spot_generated": "generated\nspot,\n240 mixed",
         "llama3": "failures,\n16,384\nH100"}


def span(interval, scale=1.0, digits=0):
    """Mean and interval as text."""
    mean, low, high = (interval.get(key) for key in ("mean", "low", "high"))
    text = f"{mean * scale:,.{digits}f}"
    if low is None or high is None:
        return text
    return f"{text} ({low * scale:,.{digits}f} to {high * scale:,.{digits}f})"


def choice(one):
    planner = f", new plans by {one['new_plans_by']}," if one["new_plans_by"] else ""
    return f"{one['policy']}{planner} with {one['plan']}, {one['interval']:g} x Young's"


def main():
    arguments = style.arguments()
    folder = Path(arguments.runs).parent
    results = {}
    for row in style.read(arguments.runs):
        if row["status"] == "ok":
            text = (folder / "runs" / row["run"] / "result.json").read_text(encoding="utf-8")
            results[row["case"]] = json.loads(text)
    head = ["case", "chosen", "tokens per dollar", "plan, then policy", "tokens per dollar",
            "gain, %", "second", "lead, %", "replays"]
    rows = []
    for case, result in results.items():
        best, common, second = (result[key] for key in ("best", "plan_then_policy", "runner_up"))
        rows.append([
            case, choice(best), span(best["tokens_per_dollar"]), choice(common),
            span(common["tokens_per_dollar"]), span(result["gain"], 100, 1),
            choice(second) if second else "", span(result["lead"], 100, 1) if second else "",
            f"{result['replays']} + {result['judging_replays']}"])
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    Path(arguments.out, "table.md").write_text(style.markdown(head, rows), encoding="utf-8")

    style.use()
    figure, axis = plt.subplots(figsize=(style.COLUMN, 2.2))
    for index, result in enumerate(results.values()):
        reference = result["plan_then_policy"]["tokens_per_dollar"]["mean"]
        for shift, key, color, hatch in ((-0.2, "plan_then_policy", "#E69F00", "////"),
                                         (0.2, "best", "#0072B2", "")):
            value = result[key]["tokens_per_dollar"]
            low, high = value["low"], value["high"]
            errors = [[(value["mean"] - low) / reference], [(high - value["mean"]) / reference]]
            axis.bar(index + shift, value["mean"] / reference, 0.38, color=color, hatch=hatch,
                     edgecolor="black", linewidth=0.5, yerr=errors, capsize=2,
                     error_kw={"linewidth": 0.7},
                     label=("plan, then policy" if key != "best" else "chosen together")
                     if index == 0 else None)
        gain = result["gain"]
        top = max(result[key]["tokens_per_dollar"]["high"] for key in ("best", "plan_then_policy"))
        low, high = 100 * gain["low"], 100 * gain["high"]
        axis.text(index, top / reference + 0.03,
                  f"{100 * gain['mean']:+.1f} %\n({low:.1f} to {high:.1f})", ha="center", fontsize=6)
    axis.set_xticks(range(len(results)), [NAMES.get(case, case) for case in results], fontsize=5.5)
    axis.set_ylabel("tokens per dollar\n(plan, then policy = 1)")
    axis.set_ylim(bottom=0)
    axis.margins(y=0.28)
    axis.grid(axis="y")
    figure.legend(loc="upper center", ncol=2)
    figure.tight_layout(rect=(0, 0, 1, 0.92))
    style.save(figure, arguments.out, "robust")


if __name__ == "__main__":
    main()

"""Reports in a real browser (browser.mjs). Exit code 77, with a reason: no Chromium, no npm.

    report_test.py SOURCE_FOLDER ORRERY [KEEP_FOLDER]
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
UNAVAILABLE = 3  # of report_page.sh

PLANS = "experiments/hexiscale/case_study/plans"
JOB = ["--cluster", "hexiscale_case_study", "--model", "llama2_13b", "--sequence-length", "4096"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def many_spans(page):
    """The page of a plan with a timeline of 64 rows and 51,200 spans."""
    begin = page.index('id="data">') + len('id="data">')
    end = page.index("</script>", begin)
    data = json.loads(page[begin:end])
    data["plans"] = data["plans"][:1]
    timeline = data["plans"][0]["timeline"]
    names = len(timeline["names"])
    row = lambda r: " ".join(f"{100 + (i * 7 + r) % 40} {900 + (i * 13 + r) % 500} {(i + r) % names}"
                             for i in range(800))
    timeline["rows"] = [{"rank": f"GPU {r}", "lane": "compute", "spans": row(r)} for r in range(64)]
    timeline["spans"] = 64 * 800
    return page[:begin] + json.dumps(data).replace("<", "\\u003c") + page[end:]


def main():
    source, orrery = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    chromium = shutil.which("chromium")
    if chromium is None:
        skip("no chromium here (Debian's package chromium)")
    made = subprocess.run([source / "tools/scripts/report_page.sh"], stderr=subprocess.PIPE, text=True)
    if made.returncode == UNAVAILABLE:
        skip(made.stderr.strip().splitlines()[-1])
    if made.returncode != 0:
        print(made.stderr)
        return 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ, ORRERY_REPORT_PAGE=str(source / "build/report/page.html"))

        def run(*arguments):
            subprocess.run([orrery, *map(str, arguments)], check=True, cwd=source, env=environment,
                           stdout=subprocess.DEVNULL)

        run("report", f"{PLANS}/hexiscale.yaml", *JOB, "-o", folder / "plan.html")
        study = folder / "study.yaml"
        study.write_text("schema: orrery/study/1\nname: batches\ncommand: plan\nsettings:\n"
                         "  cluster: hexiscale_case_study\n  model: llama2_13b\n"
                         "  job: {sequence_length: 4096}\n"
                         "axes:\n  planner.name: [amp, hexiscale]\n  job.global_batch: [24, 48, 96]\n")
        run("run", study, "--results", folder / "results", "--quiet")
        run("report", folder / "results/batches", "-o", folder / "study.html")
        run("replay", "--cluster", "hetu_32h20", "--model", "hetu_32b", "--global-batch", 64,
            "--sequence-length", 4096, "--generate", "spot", "--days", 2, "--policy",
            "checkpoint_restart,hetu,hot_spare,unicron", "--seeds", 2, "--results",
            folder / "replay", "--quiet")
        runs = next((folder / "replay").rglob("runs.csv"))
        run("report", runs.parent, "-o", folder / "replay.html")
        (folder / "many_spans.html").write_text(many_spans((folder / "plan.html").read_text()))
        return subprocess.run(["node", source / "tests/tools/report/browser.mjs",
                               source / "build/report/node_modules", chromium, folder]).returncode


if __name__ == "__main__":
    sys.exit(main())

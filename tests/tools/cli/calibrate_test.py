#!/usr/bin/python3
"""orrery calibrate on this machine.

    calibrate_test.py BINARY SOURCE_DIR [unittest arguments]
"""

import csv
import json
import os
import subprocess
import sys
import unittest

from support import BINARY, ROOT, Case, agent_of, orrery, start, wait_for


class Calibrate(Case):
    KINDS = "block,gemm,memory_bandwidth,optimizer,memory,op_overhead,checkpoint_write," \
            "checkpoint_read,point_to_point,collective"

    def calibrate(self, *args):
        return self.succeed("calibrate", "--quick", "--sequence-length", "8", "--no-figure",
                            "--out", str(self.folder), *args)

    def samples(self):
        lines = (self.folder / "samples.csv").read_text().splitlines()
        header = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
        return header, list(csv.DictReader(line for line in lines if not line.startswith("# ")))

    def keys(self):
        _, rows = self.samples()
        results = ("wall_seconds", "cpu_seconds", "disturbed", "flops")
        return [tuple(v for k, v in row.items() if k not in results) for row in rows]

    def test_measures_all_kinds_and_fits_a_profile_that_is_valid(self):
        text = self.calibrate()
        for word in ("Fits", "held out %", "profile.yaml"):
            self.assertIn(word, text)
        header, rows = self.samples()
        self.assertEqual(header["schema"], "orrery/samples/1")
        self.assertIn("cpu", header["libraries"])
        self.assertRegex(header["date"], r"^\d{4}-\d\d-\d\dT")
        self.assertEqual({row["kind"] for row in rows}, set(self.KINDS.split(",")))
        self.assertEqual({row["link_class"] for row in rows if row["kind"] == "point_to_point"},
                         {"loopback"})
        self.assertTrue(all(float(row["wall_seconds"]) > 0 for row in rows
                            if row["kind"] != "memory"))
        self.succeed("validate", str(self.folder / "profile.yaml"))
        for name in ("entries.csv", "fits.csv"):
            self.assertGreater(len((self.folder / name).read_text().splitlines()), 5)
        keys = self.keys()
        self.assertEqual(len(keys), len(set(keys)))
        # All is there: nothing is measured again, and the fit is the same.
        before = (self.folder / "samples.csv").read_bytes()
        profile = (self.folder / "profile.yaml").read_bytes()
        self.calibrate()
        self.assertEqual((self.folder / "samples.csv").read_bytes(), before)
        self.assertEqual((self.folder / "profile.yaml").read_bytes(), profile)
        document = json.loads(self.calibrate("--fit-only", "--json"))
        self.assertEqual(document["samples"], len(keys))

    def test_goes_on_after_an_interruption_without_doubles(self):
        with start("calibrate", "--quick", "--sequence-length", "8", "--no-figure",
                 "--out", str(self.folder), "--only", "gemm,point_to_point") as process:
            path = self.folder / "samples.csv"
            wait_for(lambda: path.exists() and len(path.read_text().splitlines()) > 20, every=0.01)
            out, _ = self.interrupted(process, says="samples are kept")
            self.assertEqual(out, "")
        part = self.samples()[1]
        self.assertFalse((self.folder / "profile.yaml").exists())
        # As if it had been killed while it wrote.
        text = (self.folder / "samples.csv").read_text()
        (self.folder / "samples.csv").write_text(text + "gemm,cpu,trans")
        self.calibrate("--only", "gemm,point_to_point")
        keys = self.keys()
        self.assertEqual(len(keys), len(set(keys)))
        self.assertGreater(len(keys), len(part))
        self.assertEqual(self.samples()[1][:len(part)], part)

    def test_hosts_have_agents(self):
        cluster = self.write("pair.yaml", """
schema: orrery/cluster/1
name: pair
nodes:
  - {name: a, gpus: {type: core, count: 1}, nics: [{link: wire, count: 1}]}
  - {name: b, gpus: {type: core, count: 1}, nics: [{link: wire, count: 1}]}
gpus:
  core: {vendor: cpu, peak: {fp32: 50 GFLOPS}, memory: 1 GiB, memory_bandwidth: 5 GB/s,
         source: a choice}
links:
  wire: {bandwidth: 1 Gbps, latency: 50 us, source: a choice}
""")
        with start("calibrate", "--quick", "--no-figure", "--out", str(self.folder),
                 "--cluster", cluster, "--only", "op_overhead,point_to_point",
                 "--hosts", "127.0.0.1:1,localhost:1", "--listen", "127.0.0.1:0") as driver:
            agents = []
            for _ in range(2):
                words, environment = agent_of(driver)
                agents.append(subprocess.Popen(words, env=environment))
            _, err = driver.communicate(timeout=120)
            self.assertEqual(driver.returncode, 0, err)
            self.assertEqual([agent.wait(timeout=30) for agent in agents], [0, 0])
        _, rows = self.samples()
        self.assertEqual({row["device_type"] for row in rows if row["kind"] == "op_overhead"},
                         {"core"})
        self.assertEqual({(row["source"], row["destination"], row["link_class"])
                          for row in rows if row["kind"] == "point_to_point"},
                         {("0", "1", "wire"), ("1", "0", "wire")})

    def test_a_cluster_that_is_not_there_gives_its_names_to_nothing(self):
        text = self.calibrate("--cluster", "experiments/executor/netlab_4.yaml", "--only",
                              "op_overhead,point_to_point,collective")
        self.assertIn("netlab_4 is not there without --netlab or --hosts", text)
        _, rows = self.samples()
        self.assertEqual({row["device_type"] for row in rows if row["kind"] == "op_overhead"},
                         {"cpu"})
        links = [row for row in rows if row["kind"] in ("point_to_point", "collective")]
        self.assertEqual({row["link_class"] for row in links}, {"loopback"})
        self.assertEqual({row["ranks"] for row in links if row["kind"] == "collective"},
                         {"2", "4"})
        profile = (self.folder / "profile.yaml").read_text()
        self.assertNotIn("emulated-", profile)
        self.assertNotIn("cpu_core", profile)
        self.refuse("calibrate", "--cluster", "a100_8", "--ranks", "2", "--out", str(self.folder),
                    says="--ranks: the cluster says how many there are")

    def test_counts_of_the_text_add_up(self):
        text = self.calibrate("--only", "op_overhead,gemm")
        _, rows = self.samples()
        disturbed = sum(int(row["disturbed"]) for row in rows)
        self.assertIn(f"{len(rows)} samples, {disturbed} of them disturbed and used in no fit",
                      text)
        self.assertRegex(text, r"kind +entries +used +disturbed")

    def test_samples_of_another_model_are_not_mixed(self):
        self.calibrate("--only", "op_overhead")
        model = self.write("other.yaml", (ROOT / "experiments/executor/tiny_llama.yaml")
                           .read_text().replace("tiny_llama", "other"))
        self.refuse("calibrate", "--quick", "--sequence-length", "8", "--no-figure", "--model",
                    model, "--out", str(self.folder),
                    says=["samples.csv: its model is 'tiny_llama', this calibration's 'other'",
                          "name another folder"])

    def test_a_quick_profile_says_that_it_is_quick_until_all_is_measured(self):
        # Messages only wait: no load of the machine leaves them out of the fits.
        self.assertIn("Taken with --quick", self.calibrate("--only", "point_to_point"))
        self.assertEqual(self.samples()[0]["sampling"], "quick")
        profile = self.folder / "profile.yaml"
        self.assertIn("calibrate --quick: not for use", profile.read_text())
        # Also when the samples are fitted later.
        profile.unlink()
        flags = ["calibrate", "--sequence-length", "8", "--no-figure", "--out", str(self.folder)]
        self.assertEqual(self.document(*flags, "--fit-only")["sampling"],
                         "quick")
        self.assertIn("calibrate --quick: not for use", profile.read_text())
        # A part in full does not make the rest of it full.
        self.succeed(*flags, "--only", "op_overhead", "--quiet")
        self.assertIn("calibrate --quick: not for use", profile.read_text())
        text = (self.folder / "samples.csv").read_text()
        (self.folder / "samples.csv").write_text(text.replace("# sampling: quick", "# sampling: x"))
        self.refuse(*flags, "--fit-only", says="samples.csv:7:13: sampling 'x'")

    def test_interrupted_while_it_draws_it_stops_and_says_what_is_there(self):
        self.calibrate("--only", "op_overhead,memory_bandwidth")
        (self.folder / "fits.csv").unlink()
        with start("calibrate", "--sequence-length", "8", "--out", str(self.folder),
                 "--fit-only") as process:
            wait_for((self.folder / "fits.csv").exists, every=0.005)
            self.interrupted(process, says="interrupted; the profile is written, figures are not")
        self.assertEqual([path.name for path in self.folder.glob("*.tmp")], [])
        self.assertTrue((self.folder / "profile.yaml").exists())

    def test_without_namespaces_an_emulated_network_is_refused_before_the_work(self):
        before = []
        if os.geteuid() == 0:
            before = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        try:
            tried = subprocess.run([*before, "unshare", "--net", "true"], capture_output=True)
        except FileNotFoundError as error:
            self.skipTest(str(error))
        if tried.returncode == 0:
            self.skipTest("namespaces cannot be taken away here")
        out = self.folder / "out"
        done = subprocess.run(
            [*before, BINARY, "calibrate", "--quick", "--no-figure", "--cluster",
             "experiments/executor/netlab_4.yaml", "--netlab", "--out", str(out)], cwd=ROOT,
            capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--netlab: network namespaces are not permitted here", done.stderr)
        self.assertIn("or name the cluster's machines with --hosts", done.stderr)
        self.assertFalse((out / "samples.csv").exists())

    def test_every_bad_flag_is_named(self):
        self.refuse("calibrate", "--out", str(self.folder), "--gpu-type", "",
                    says="--gpu-type: names no type")
        self.refuse("calibrate", "--out", str(self.folder), "--only", ",",
                    says="--only: names no kind")
        self.refuse("calibrate", "--out", str(self.folder), "--backend", "gpu", "--precision",
                    "fp99", "--only", "gem", "--hosts", "a", "--ranks", "0", "--model", "llama_7c",
                    "--shares", "50",
                    says=["--backend: unknown value 'gpu'", "--precision: unknown value 'fp99'",
                          "--only: unknown value 'gem' (did you mean 'gemm'?",
                          "--hosts: 'a' is not NAME:DEVICES", "--ranks: must be from 1 to 64",
                          "did you mean 'llama_7b'"])
        self.refuse("calibrate", "--out", str(self.folder), "--shares", "50",
                    says="--shares: needs a GPU of this machine")
        self.refuse("calibrate", "--out", str(self.folder), "--model",
                    "gshard_moe_1.3b", says="--model: the micro-benchmarks time no layers with experts")
        self.refuse("calibrate", "--out", "/dev/null/x",
                    says="--out: cannot write into '/dev/null/x': not a folder")
        self.refuse("calibrate", "--out", str(self.folder), "--fit-only",
                    says="samples.csv: cannot")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_cuda_without_a_device_is_refused_with_the_reason(self):
        done = orrery("calibrate", "--backend", "cuda", "--quick", "--only", "op_overhead",
                      "--out", str(self.folder), "--no-figure")
        if done.returncode == 0:
            self.skipTest("there is a GPU")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--backend: cuda: ", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])

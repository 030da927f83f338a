#!/usr/bin/python3
"""The studies against A100 measurements: are published rows read right, do folded programs take the
time of whole ones, does the fit find parameters and see nothing else (experiments/validation/a100,
vtrain and megatron)?"""

import importlib.util
import unittest
from dataclasses import replace

import support
import errors
import orrery
import tables
from a100 import cases, study
from a100.runs import DECLARED, Run, padded_vocabulary, read_parameters


def script(name):
    """predict.py of a study."""
    spec = importlib.util.spec_from_file_location(name, support.VALIDATION / name / "predict.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VTRAIN, MEGATRON = script("vtrain"), script("megatron")
VTRAIN_HEADER = ("id,source_row_index,params_billion,layers,hidden,heads,seq_len,"
                 "vocab_size_assumed,gpus,tp,dp,pp,micro_batch,global_batch,"
                 "activation_recompute_declared")
VTRAIN_SHAPE = "3.6,30,3072,32,2048,50257"


class Rows(support.Folder):
    def read(self, study_of):
        self.problems = tables.Problems()
        return study_of.read(self.folder, self.problems)

    def test_vtrain_fits_every_fourth_row_inside_nodes(self):
        self.write("multi_measured.csv", "\n".join([
            VTRAIN_HEADER + ",measured_seconds",
            f"a,0,{VTRAIN_SHAPE},64,8,8,1,4,512,full,3.5",
            f"b,2,{VTRAIN_SHAPE},64,8,8,1,2,512,full,4.5",
            f"c,4,{VTRAIN_SHAPE},64,16,4,1,2,512,full,5.5",
            f"d,8,{VTRAIN_SHAPE},64,8,8,1,1,512,full,6.5"]))
        self.write("multi_predict.csv",
                   f"{VTRAIN_HEADER}\nvtrain-multi-091,91,{VTRAIN_SHAPE},64,1,8,8,2,512,full\n")
        runs = self.read(VTRAIN)
        self.assertEqual(self.problems.found, [])
        # c has tensor parallelism across nodes.
        self.assertEqual([run.fitted for run in runs], [True, False, False, True, False])
        self.assertEqual([run.scored for run in runs], [True] * 4 + [False])
        self.assertEqual([run.set for run in runs[:3]], ["3.6B", "3.6B", "TP 16"])
        self.assertEqual((runs[0].vocabulary, runs[4].vocabulary), (51200, 50304))
        self.assertEqual((runs[0].micro_batches, runs[0].measured), (16, 3.5))

    def test_what_does_not_fit_together_is_a_problem_at_its_cell(self):
        self.write("multi_measured.csv", f"{VTRAIN_HEADER},measured_seconds\n"
                                         f"a,0,{VTRAIN_SHAPE},63,8,8,1,3,512,none,x\n")
        self.read(VTRAIN)
        # gpus, global batch, recompute, time (twice: x, and thus missing); the second file.
        self.assertEqual(len(self.problems.found), 6)
        first = self.problems.found[0]
        self.assertEqual((first.line, first.column),
                         (2, len(f"a,0,{VTRAIN_SHAPE},63,8,8,1,3,512,") + 1))
        self.assertIn("only 'full' is known", first.what)
        with self.assertRaises(orrery.ConfigError):
            self.problems.raise_any()

    def test_parameters_are_read_back_and_others_are_declared(self):
        fitted = DECLARED | {"gemm_share": 0.63, "memory_share": 0.55}
        rows = [errors.Parameter(name, "", fitted[name], ["a"], 0.1)
                for name in ("gemm_share", "memory_share")]
        problems = tables.Problems()
        path = self.write("parameters.csv", errors.parameters_csv("test", rows))
        self.assertEqual(read_parameters(path, problems), fitted)
        self.assertEqual(problems.found, [])
        read_parameters(self.write("bad.csv", "name,value\nshare,1\ngemm_share,7\n"), problems)
        self.assertEqual([(problem.line, problem.column) for problem in problems.found],
                         [(2, 1), (3, 12)])

    def test_the_vocabulary_is_padded_for_each_member(self):
        self.assertEqual([padded_vocabulary(50257, tp) for tp in (1, 2, 8)], [50304, 50432, 51200])
        self.assertEqual(padded_vocabulary(51200, 8), 51200)


class PublishedData(unittest.TestCase):
    """The public data."""

    def read(self, study_of, name):
        folder = tables.measurements(name)
        problems = tables.Problems()
        runs = study_of.read(folder, problems)
        self.assertEqual(problems.found, [])
        return folder, runs

    def test_at_most_a_fifth_of_the_rows_is_a_parameter_and_nothing_unmeasured_is_fitted(self):
        for study_of, name, counts in ((VTRAIN, "vtrain", (109, 55, 27)),
                                       (MEGATRON, "megatron", (20, 14, 10))):
            with self.subTest(name):
                _, runs = self.read(study_of, name)
                measured = [run for run in runs if run.measured is not None]
                fitted = [run for run in measured if run.fitted]
                self.assertEqual((len({run.id for run in runs}), len(measured), len(fitted)),
                                 counts)
                self.assertEqual(sum(run.fitted for run in runs), len(fitted))
                self.assertTrue(errors.enough_rows(len(study_of.FREE), len(fitted)))

    def test_equation_3_agrees_with_the_published_columns(self):
        folder, runs = self.read(MEGATRON, "megatron")
        published = {}
        for file, column in (("sc21_table1.csv", "flop_per_iteration_eq3"),
                             ("recompute_table5.csv", "model_flop_per_iteration")):
            for row in tables.Table(folder / file, ["id", column], tables.Problems()):
                published[row.text("id")] = row.number(column)
        compared = [run for run in runs if run.id in published]
        self.assertEqual(len(compared), 14)
        for run in compared:
            own = (MEGATRON.equation_3 if run.set == "SC'21" else MEGATRON.model_flops)(run)
            self.assertAlmostEqual(own / published[run.id], 1, delta=1e-6, msg=run.id)


def toy(tp, pp, dp, **more):
    return Run(**({"id": f"tp{tp}-pp{pp}-dp{dp}", "set": "small", "layers": 8, "hidden": 1024,
                   "heads": 16, "sequence": 1024, "vocabulary": 50304, "tp": tp, "pp": pp, "dp": dp,
                   "micro_batch": 2, "global_batch": 8 * dp, "nics_per_node": 4} | more))


def time_of(run, folded=False, parameters=None):
    return cases.simulate(cases.make_case(run, folded), parameters or DECLARED).iteration


class Cases(unittest.TestCase):
    def test_one_adapter_in_two_represents_all(self):
        # Two neighbors share an adapter: both of their slices stay, and the time does.
        for run in (toy(8, 4, 2), toy(4, 4, 4), toy(2, 8, 4)):
            with self.subTest(run.id):
                thin = cases.make_case(run, folded=False)
                whole = replace(thin, program=thin.training.lower(thin.plan))

                def slices(case):
                    sets = case.program.transfer_sets
                    return sum(len(sets[op.transfers]) for op in case.program.ops
                               if op.kind == "send" and op.purpose == "pipeline")

                self.assertEqual(slices(whole), slices(thin) * run.tp // 2)
                self.assertAlmostEqual(
                    cases.simulate(thin, DECLARED).iteration /
                    cases.simulate(whole, DECLARED).iteration, 1, delta=1e-9)

    def test_folding_takes_the_time_of_all_replicas(self):
        for run in (toy(8, 2, 6), toy(4, 2, 8), toy(2, 1, 16), toy(1, 2, 32)):
            with self.subTest(run.id):
                self.assertLess(cases.folded_replicas(run), run.dp)
                self.assertAlmostEqual(time_of(run, folded=True) / time_of(run), 1, delta=0.01)

    def test_folding_leaves_rows_on_two_nodes_alone(self):
        self.assertEqual([cases.folded_replicas(run)
                          for run in (toy(4, 2, 4), toy(8, 4, 1), toy(16, 1, 4))], [4, 1, 2])

    def test_interleaved_and_sequence_parallel_runs_are_valid(self):
        run = toy(8, 2, 3, virtual_stages=2, recompute="selective", sequence_parallel=True)
        self.assertGreater(time_of(run), 0)

    def test_a_pass_waits_for_the_host_where_kernels_are_short(self):
        run = toy(1, 1, 16, sequence=2048, micro_batch=1)
        slow = time_of(run, parameters=DECLARED | {"host_per_layer": 0.02})
        # Eight layers, eight micro-batches, three passes of a layer with full recomputation.
        self.assertGreaterEqual(slow, 8 * 8 * 3 * 0.02)
        self.assertLess(time_of(run), slow)


class Fits(unittest.TestCase):
    FREE = ["gemm_share", "memory_share"]
    TRUTH = DECLARED | {"gemm_share": 0.63, "memory_share": 0.55}

    def synthetic(self):
        """Small runs, "measured" by the simulator with parameters that the fit does not know."""
        runs = [toy(tp, 2 if tp == 2 else 1, 16 // tp // (2 if tp == 2 else 1), hidden=1024 * tp,
                    sequence=2048, micro_batch=micro_batch, id=f"tp{tp}-b{micro_batch}")
                for tp in (1, 2, 4, 8) for micro_batch in (1, 2, 4)]
        for i, (run, one) in enumerate(zip(runs, study.predict(runs, self.TRUTH))):
            run.measured = one.iteration
            run.fitted = i not in (5, 8)
        return runs

    def test_recovers_the_parameters_of_simulated_rows_and_does_not_see_scored_ones(self):
        runs = self.synthetic()
        fitted = study.fit_runs(runs, self.FREE)
        self.assertAlmostEqual(fitted.parameters["gemm_share"], 0.63, delta=0.01)
        self.assertAlmostEqual(fitted.parameters["memory_share"], 0.55, delta=0.01)
        self.assertEqual(fitted.parameters["nvlink_share"], DECLARED["nvlink_share"])
        for error in fitted.left_out:
            self.assertAlmostEqual(error, 0, delta=0.01)
        blind = [run if run.fitted else replace(run, measured=10 * run.measured) for run in runs]
        again = study.fit_runs(blind, self.FREE)
        self.assertEqual(again.parameters, fitted.parameters)
        self.assertEqual(again.left_out, fitted.left_out)

    def test_predictions_are_the_same_whatever_runs_beside(self):
        runs = [toy(2, 2, 4), toy(4, 1, 4), toy(8, 1, 2)]
        self.assertEqual([one.iteration for one in study.predict(runs, self.TRUTH, jobs=1)],
                         [one.iteration for one in study.predict(runs, self.TRUTH, jobs=3)])

    def test_unseen_errors_take_fitted_rows_from_their_leave_one_out(self):
        runs = [toy(1, 1, 1, measured=2.0, fitted=True), toy(1, 1, 1, measured=2.0), toy(1, 1, 1)]
        found = study.unseen_errors(runs, [cases.Prediction(time, {}) for time in (2.0, 1.0, 1.0)],
                                    study.Fit({}, [0], [0.25], None))
        self.assertEqual(found, [0.25, -0.5, None])


if __name__ == "__main__":
    unittest.main()

"""Values of C++ in Python: what changes, what is checked, what survives a round trip."""

import copy
import pickle
import tempfile
import unittest

import orrery
from orrery import Group, Pipeline, Plan, Segment, Stage


def two_stages() -> Plan:
    stages = [Stage(segments=[Segment(first_block=first, last_block=last,
                                      groups=[Group(devices=[device])])])
              for device, (first, last) in enumerate([(0, 20), (21, 41)])]
    return Plan(pipelines=[Pipeline(micro_batches=4, stages=stages)])


class Records(unittest.TestCase):
    def test_what_is_changed_inside_counts(self):
        plan = two_stages()
        plan.pipelines[0].stages[1].segments[0].recompute = "full"
        again = orrery.load_plan(yaml_of(plan))
        self.assertEqual(again.pipelines[0].stages[1].segments[0].recompute, "full")
        self.assertEqual(again.pipelines[0].stages[0].segments[0].recompute, "none")
        self.assertEqual(again, plan)
        plan.pipelines.append(copy.deepcopy(plan.pipelines[0]))
        self.assertEqual(orrery._orrery.global_batch(plan), 8)
        self.assertNotEqual(again, plan)

    def test_copies_are_apart(self):
        plan = two_stages()
        for other in (copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
            self.assertEqual(other, plan)
            other.pipelines[0].stages[0].segments[0].groups[0].devices[0] = 7
            self.assertNotEqual(other, plan)
        self.assertEqual(plan.pipelines[0].stages[0].segments[0].groups[0].devices, [0])

    def test_a_wrong_type_names_the_path_to_it(self):
        plan = two_stages()
        plan.pipelines[0].stages[1].segments[0].groups[0].devices = [0, "x"]
        with self.assertRaisesRegex(
                TypeError, r"^pipelines\[0\].stages\[1\].segments\[0\].groups\[0\].devices\[1\]: "
                "expected an integer, got str 'x'"):
            orrery.dumps(plan)
        with self.assertRaisesRegex(TypeError, "has no field 'micro_batch'.*did you mean"):
            Pipeline(micro_batch=3)
        with self.assertRaisesRegex(TypeError, r"schedule: no such value '1f2b' \(did you mean '1f1b'"):
            orrery.dumps(Plan(schedule="1f2b"))
        with self.assertRaises(AttributeError):
            plan.pipeline = []

    def test_a_value_that_no_file_may_say_is_a_config_error(self):
        plan = two_stages()
        plan.pipelines[0].micro_batches = 0
        with self.assertRaises(orrery.ConfigError) as caught:
            orrery.dumps(plan)
        self.assertEqual([(problem.file, problem.what) for problem in caught.exception.problems],
                         [("plan.pipelines[0].micro_batches", "must be at least 1, is 0")])
        with self.assertRaisesRegex(orrery.ConfigError, "job.global_batch: must be at least 1"):
            orrery.dumps(orrery.Job())

    def test_numbers_are_in_base_units(self):
        cluster = orrery.load_cluster("hexiscale_case_study")
        self.assertEqual(cluster.gpu_types[0].memory, 80 * 2**30)
        job = orrery.load_job(global_batch=8, sequence_length=128, state_bytes={"gradient": 4})
        self.assertEqual(job.state_bytes.gradient, 4.0)
        with self.assertRaisesRegex(TypeError, "gpu_types.*memory: expected a finite number"):
            cluster.gpu_types[0].memory = float("nan")
            orrery.dumps(cluster)

    def test_every_cluster_of_the_library_reads_back_from_its_dump(self):
        for name in orrery._orrery.library()["clusters"]:
            cluster = orrery.load_cluster(name)
            with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
                orrery.save(cluster, file.name)
                self.assertEqual(orrery.load_cluster(file.name).hash, cluster.hash, name)

    def test_a_cluster_of_numbers_is_checked_as_a_file_is(self):
        tree = {"schema": "orrery/cluster/1", "name": "pair",
                "nodes": [{"name": "n", "count": 2, "gpus": {"type": "A100-80GB", "count": 2},
                           "domains": {"link": "nvlink3"},
                           "nics": {"link": "infiniband-200", "bandwidth": 5e9}}]}
        cluster = orrery.load_cluster(tree)
        self.assertEqual([len(node.gpu_types) for node in cluster.nodes], [2, 2])
        self.assertEqual(cluster.links[cluster.nodes[0].nics[0].link].bandwidth, 5e9)
        tree["nodes"][0]["gpus"]["typ"] = tree["nodes"][0]["gpus"].pop("type")
        with self.assertRaisesRegex(orrery.ConfigError, r"cluster.nodes\[0\].gpus.*did you mean 'type'"):
            orrery.load_cluster(tree)
        cluster.nodes[1].gpu_types = [0, 4]
        with self.assertRaisesRegex(orrery.ConfigError, "no GPU type 4"):
            orrery.dumps(cluster)

    def test_programs_survive_their_file(self):
        at = orrery.Training("hexiscale_case_study", "llama2_13b", global_batch=4,
                             sequence_length=512)
        program = at.lower(two_stages())
        with tempfile.NamedTemporaryFile() as file:
            orrery.save(program, file.name)
            again = orrery.load_program(file.name)
        self.assertEqual(again, program)
        again.ops[0].samples += 1
        self.assertNotEqual(orrery._orrery.program_hash(again),
                            orrery._orrery.program_hash(program))

    def test_what_cannot_be_written_leaves_the_file_as_it_was(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/plan.yaml"
            plan = Plan(planner="kept", pipelines=[Pipeline(stages=[Stage(segments=[
                Segment(first_block=0, last_block=1, groups=[Group(devices=[0])])])])])
            orrery.save(plan, path)
            plan.planner = 3
            for value in (plan, 3):
                with self.assertRaises(TypeError):
                    orrery.save(value, path)
            self.assertEqual(orrery.load_plan(path).planner, "kept")

    def test_settings_of_a_job_go_on_top_of_whatever_it_is_read_from(self):
        job = {"global_batch": 8, "sequence_length": 512, "allowed": {"zero_stages": [1]}}
        more = {"allowed": {"max_tensor_parallel": 4}}
        self.assertEqual(orrery.load_job(job, **more).allowed.zero_stages, [1])
        self.assertEqual(orrery.load_job(job, **more), orrery.load_job(orrery.load_job(job), **more))

    def test_words_of_python_have_an_underscore(self):
        self.assertEqual(orrery.StateTransfer(from_="nvme").to_dict()["from_"], "nvme")


def yaml_of(plan: Plan) -> str:
    file = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False)
    file.close()
    orrery.save(plan, file.name)
    return file.name


if __name__ == "__main__":
    unittest.main()

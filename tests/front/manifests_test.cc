// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/job/manifests.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/refusals.h"

namespace trireme::job::manifests_test {
namespace {

using trireme::testing::Command;
using trireme::testing::has;

JobSpec two_nodes() {
  JobSpec job;
  job.name = "gpt";
  job.program = "trireme";
  job.run_dir = "/runs/gpt";
  job.nodes = job.least_nodes = 2;
  job.ranks_per_node = 4;
  job.gpus_per_node = 4;
  job.memory = "64G";
  return job;
}
KubernetesSpec on(Manifest kind) {
  KubernetesSpec k;
  k.kind = kind;
  k.image = "registry/trireme";
  k.secret = "gpt-secret";
  k.volumes = {{"runs", "/runs"}};
  k.configs = {{"gpt.json", "{\n  \"a\": 1  // one\n}\n"}};
  return k;
}

TEST(front_manifests, an_indexed_job_of_two_nodes_is_this_text) {
  EXPECT_EQ(manifests(two_nodes(), on(Manifest::job)),
            R"(# Printed by trireme job kubernetes: a launcher in each pod.
# The job's secret is made once, and stands here by its name alone:
#   openssl rand -hex 32 | kubectl create secret generic gpt-secret --from-file=secret=/dev/stdin
apiVersion: v1
kind: ConfigMap
metadata:
  name: gpt-config
data:
  gpt.json: |
    {
      "a": 1  // one
    }
---
apiVersion: v1
kind: Service
metadata:
  name: gpt
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    trireme-job: gpt
---
apiVersion: batch/v1
kind: Job
metadata:
  name: gpt
spec:
  completionMode: Indexed
  completions: 2
  parallelism: 2
  backoffLimit: 8
  podFailurePolicy:
    rules:
      - action: Ignore
        onExitCodes:
          containerName: trireme
          operator: In
          values:
            - 75
      - action: FailJob
        onExitCodes:
          containerName: trireme
          operator: In
          values:
            - 2
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
            status: "True"
  template:
    metadata:
      labels:
        trireme-job: gpt
    spec:
      restartPolicy: Never
      subdomain: gpt
      terminationGracePeriodSeconds: 120
      containers:
        - name: trireme
          image: registry/trireme
          command:
            - trireme
            - train
            - /etc/trireme/gpt.json
            - --run-dir
            - /runs/gpt
            - --resume
            - auto
            - --nproc-per-node=4
            - --shutdown-timeout=115
            - --nnodes=2
            - --rdzv-id=gpt
            - --master-addr=gpt-0.gpt
          env:
            - name: TRIREME_SECRET_FILE
              value: /run/trireme/secret
          resources:
            limits:
              cpu: "4"
              memory: "64Gi"
              nvidia.com/gpu: "4"
          volumeMounts:
            - name: config
              mountPath: /etc/trireme
            - name: secret
              mountPath: /run/trireme
              readOnly: true
            - name: volume-0
              mountPath: /runs
      volumes:
        - name: config
          configMap:
            name: gpt-config
        - name: secret
          secret:
            secretName: gpt-secret
            defaultMode: 256
        - name: volume-0
          persistentVolumeClaim:
            claimName: runs
)");
}

TEST(front_manifests, a_PyTorchJob_takes_its_operators_numbers_of_pods_for_those_of_nodes) {
  const std::string text = manifests(two_nodes(), on(Manifest::pytorchjob));
  for (const char* part :
       {"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n", "    Master:\n      replicas: 1\n",
        "    Worker:\n      replicas: 1\n", "restartPolicy: OnFailure", "- name: pytorch\n",
        "- --nnodes=2\n", "- \"--node-rank=$(RANK)\"\n", "- \"--master-addr=$(MASTER_ADDR)\"\n",
        "- \"--master-port=$(MASTER_PORT)\"\n", "backoffLimit: 8"})
    EXPECT_TRUE(has(text, part)) << part << text;
  JobSpec alone = two_nodes();
  alone.nodes = alone.least_nodes = 1;
  const std::string one = manifests(alone, on(Manifest::pytorchjob));
  EXPECT_FALSE(has(one, "Worker:")) << one;
  // Without it the operator's RANK and WORLD_SIZE would be taken for those of a rank.
  EXPECT_TRUE(has(one, "- --nnodes=1\n")) << one;
  EXPECT_FALSE(has(one, "ecret")) << one;
}

TEST(front_manifests, a_TrainJob_brings_its_runtime_and_leaves_the_variables_to_it) {
  const std::string text = manifests(two_nodes(), on(Manifest::trainjob));
  for (const char* part :
       {"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\n", "kind: TrainJob\n",
        "    numNodes: 2\n    torch:\n      numProcPerNode: 4\n", "- name: node\n",
        "trainer.kubeflow.org/trainjob-ancestor-step: trainer\n", "numProcPerNode: 4\n",
        "    apiGroup: trainer.kubeflow.org\n    kind: TrainingRuntime\n    name: gpt\n"})
    EXPECT_TRUE(has(text, part)) << part << text;
  // They are in PET_*, which a TrainJob may not set by itself.
  for (const char* absent :
       {"--nnodes", "--nproc-per-node", "--node-rank", "--master-addr", "PET_"})
    EXPECT_FALSE(has(text, absent)) << absent << text;
}

TEST(front_manifests, nodes_that_come_and_go_meet_at_the_first_pod) {
  JobSpec job = two_nodes();
  job.nodes = 4;
  const std::string indexed = manifests(job, on(Manifest::job));
  for (const char* part :
       {"- \"--nnodes=2:4\"\n", "- --rdzv-backend=c10d\n",
        "- \"--rdzv-endpoint=gpt-0.gpt:29400\"\n", "- \"--local-addr=$(POD_IP)\"\n",
        "fieldPath: status.podIP\n", "completions: 4\n"})
    EXPECT_TRUE(has(indexed, part)) << part << indexed;
  const std::string kubeflow = manifests(job, on(Manifest::pytorchjob));
  for (const char* part : {"- \"--rdzv-endpoint=gpt-worker-0:29400\"\n", "minReplicas: 2\n",
                           "maxReplicas: 4\n", "    Worker:\n      replicas: 4\n"})
    EXPECT_TRUE(has(kubeflow, part)) << part << kubeflow;
  EXPECT_FALSE(has(kubeflow, "Master:")) << kubeflow;
}

// What a pod that is not root's can read of a mounted secret, its group can, too.
TEST(front_manifests, a_container_that_is_not_roots_makes_the_secret_its_own) {
  KubernetesSpec k = on(Manifest::job);
  k.user = 1000;
  const std::string text = manifests(two_nodes(), k);
  for (const char* part :
       {"      securityContext:\n        runAsNonRoot: true\n        runAsUser: 1000\n"
        "        runAsGroup: 1000\n        fsGroup: 1000\n",
        "command:\n            - /bin/sh\n            - \"-c\"\n",
        R"(- "umask 077 && cat /run/trireme/secret > /tmp/trireme-secret && exec \"$$@\"")",
        "            - sh\n            - trireme\n            - train\n",
        "value: /tmp/trireme-secret\n"})
    EXPECT_TRUE(has(text, part)) << part << text;
  JobSpec alone = two_nodes();
  alone.nodes = alone.least_nodes = 1;
  EXPECT_FALSE(has(manifests(alone, k), "/bin/sh"));
}

TEST(front_manifests, a_users_word_is_never_a_variable_of_kubernetes) {
  JobSpec job = two_nodes();
  job.train_words = {"--set", "a=$(RANK) $$ $x"};
  job.run_dir = "/runs/$(MASTER_ADDR)";
  const std::string text = manifests(job, on(Manifest::job));
  EXPECT_TRUE(has(text, "- \"a=$$(RANK) $$$$ $$x\"\n")) << text;
  EXPECT_TRUE(has(text, "- \"/runs/$$(MASTER_ADDR)\"\n")) << text;
}

/// Python's reader, where it is installed: all kinds, with a configuration full of traps.
TEST(front_manifests, another_reader_finds_the_documents_and_the_configuration_as_it_was) {
  Command there({"python3", "-c", "import yaml"});
  if (there.finish() != 0) GTEST_SKIP() << "python3-yaml is not installed";
  PrivateFolder folder("manifests");
  for (const auto& [kind, kinds] :
       {std::pair{Manifest::job, R"(["ConfigMap","Service","Job"])"},
        std::pair{Manifest::pytorchjob, R"(["ConfigMap","PyTorchJob"])"},
        std::pair{Manifest::trainjob, R"(["ConfigMap","TrainingRuntime","TrainJob"])"}}) {
    KubernetesSpec k = on(kind);
    k.configs = {{"no", "# a\n---\n\t{\"y\": 'no', x: |}\n"}, {"1.json", "\r\n \x7f"}};
    k.name_space = "on";
    write_file_atomic(folder / "a.yaml", manifests(two_nodes(), k));
    Command read({"python3", "-c",
                  "import json, sys, yaml\n"
                  "d = list(yaml.safe_load_all(open(sys.argv[1], encoding='utf-8', newline='')))\n"
                  "print(json.dumps([[x['kind'] for x in d], d[0]['data'], "
                  "[x['metadata']['namespace'] for x in d]]))",
                  folder / "a.yaml"});
    ASSERT_EQ(read.finish(), 0) << read.err;
    const auto found = nlohmann::json::parse(read.out);
    EXPECT_EQ(found[0], nlohmann::json::parse(kinds));
    EXPECT_EQ(found[1].at("no"), k.configs[0].second);
    EXPECT_EQ(found[1].at("1.json"), k.configs[1].second);
    for (const auto& name : found[2]) EXPECT_EQ(name, "on");
  }
}

}  // namespace
}  // namespace trireme::job::manifests_test

// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/job/manifests.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/front/job/yaml.h"

namespace trireme::job {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr char kConfigFolder[] = "/etc/trireme";
constexpr char kSecretFolder[] = "/run/trireme";
/// A mounted file is root's, and where others than root are to read it, of their group: no launcher
/// takes such a secret. "sh" is $0, and the launcher becomes the container's first process.
constexpr char kOwnSecret[] = "/tmp/trireme-secret";
constexpr char kTakeSecret[] =
    "umask 077 && cat /run/trireme/secret > /tmp/trireme-secret && exec \"$$@\"";
constexpr int kPort = 29400;
/// Pods that may fail of each node before the job has failed; those that saved and left are not
/// counted.
constexpr int kFailuresOfNode = 4;

/// Kubernetes reads $(NAME) in a word of a command, and $$ as $.
std::string literal_word(const std::string& word) {
  std::string out;
  for (const char c : word) out += c == '$' ? "$$" : std::string(1, c);
  return out;
}

std::string config_map(const JobSpec& job) { return job.name + "-config"; }

/// How the launchers find each other: whose variables they read is Kubernetes' affair and ours.
Words meeting_words(const JobSpec& job, Manifest kind) {
  if (kind == Manifest::trainjob) return {};  // PET_* says it all
  const std::string id = "--rdzv-id=" + job.name;
  if (job.elastic()) {
    const std::string first =
        kind == Manifest::job ? job.name + "-0." + job.name : job.name + "-worker-0";
    return {fmt::format("--nnodes={}:{}", job.least_nodes, job.nodes), id, "--rdzv-backend=c10d",
            fmt::format("--rdzv-endpoint={}:{}", first, kPort), "--local-addr=$(POD_IP)"};
  }
  Words words{fmt::format("--nnodes={}", job.nodes)};
  if (job.nodes == 1) return words;
  words.push_back(id);
  if (kind == Manifest::job)  // the pod's number is in JOB_COMPLETION_INDEX
    words.push_back(fmt::format("--master-addr={0}-0.{0}", job.name));
  else  // this operator's RANK counts pods
    words.insert(words.end(), {"--node-rank=$(RANK)", "--master-addr=$(MASTER_ADDR)",
                               "--master-port=$(MASTER_PORT)"});
  return words;
}

bool takes_secret(const JobSpec& job, const KubernetesSpec& k) {
  return job.needs_secret() && k.user > 0;
}

Words command(const JobSpec& job, const KubernetesSpec& k) {
  Words words;
  if (takes_secret(job, k)) words = {"/bin/sh", "-c", kTakeSecret, "sh"};
  words.insert(words.end(), {literal_word(job.program), "train"});
  for (const auto& [name, text] : k.configs)
    words.push_back(fmt::format("{}/{}", kConfigFolder, name));
  words.insert(words.end(), {"--run-dir", literal_word(job.run_dir), "--resume", "auto"});
  for (const std::string& word : job.train_words) words.push_back(literal_word(word));
  if (k.kind != Manifest::trainjob)
    words.push_back(fmt::format("--nproc-per-node={}", job.ranks_per_node));
  words.push_back(fmt::format("--shutdown-timeout={}", job.shutdown_timeout()));
  for (const std::string& word : meeting_words(job, k.kind)) words.push_back(word);
  return words;
}

Json resources(const JobSpec& job) {
  Json limits{{"cpu", std::to_string(job.cpus_per_node())}};
  if (!job.memory.empty()) limits["memory"] = job.memory + "i";
  if (job.gpus_per_node > 0) limits["nvidia.com/gpu"] = std::to_string(job.gpus_per_node);
  return {{"limits", limits}};
}

Json container(const JobSpec& job, const KubernetesSpec& k, const char* name) {
  Json container{{"name", name}, {"image", k.image}, {"command", command(job, k)}};
  Json env = Json::array();
  if (job.elastic())
    env.push_back(
        {{"name", "POD_IP"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}});
  if (job.needs_secret())
    env.push_back(
        {{"name", "TRIREME_SECRET_FILE"},
         {"value", takes_secret(job, k) ? kOwnSecret : std::string(kSecretFolder) + "/secret"}});
  if (!env.empty()) container["env"] = env;
  container["resources"] = resources(job);
  Json mounts = Json::array({{{"name", "config"}, {"mountPath", kConfigFolder}}});
  if (job.needs_secret())
    mounts.push_back({{"name", "secret"}, {"mountPath", kSecretFolder}, {"readOnly", true}});
  for (size_t i = 0; i < k.volumes.size(); ++i)
    mounts.push_back({{"name", fmt::format("volume-{}", i)}, {"mountPath", k.volumes[i].second}});
  container["volumeMounts"] = mounts;
  return container;
}

Json pod(const JobSpec& job, const KubernetesSpec& k, const char* container_name) {
  Json volumes = Json::array({{{"name", "config"}, {"configMap", {{"name", config_map(job)}}}}});
  if (job.needs_secret())  // 256: 0400
    volumes.push_back(
        {{"name", "secret"}, {"secret", {{"secretName", k.secret}, {"defaultMode", 256}}}});
  for (size_t i = 0; i < k.volumes.size(); ++i)
    volumes.push_back({{"name", fmt::format("volume-{}", i)},
                       {"persistentVolumeClaim", {{"claimName", k.volumes[i].first}}}});
  Json spec{{"terminationGracePeriodSeconds", job.grace}};
  if (k.user > 0)
    spec["securityContext"] = {
        {"runAsNonRoot", true}, {"runAsUser", k.user}, {"runAsGroup", k.user}, {"fsGroup", k.user}};
  spec["containers"] = Json::array({container(job, k, container_name)});
  spec["volumes"] = volumes;
  return spec;
}

Json metadata(const std::string& name, const KubernetesSpec& k) {
  Json meta{{"name", name}};
  if (!k.name_space.empty()) meta["namespace"] = k.name_space;
  return meta;
}

/// 75: a step is saved, start me again. 2: what every attempt would meet.
Json failure_policy(const char* container_name) {
  const auto on_code = [&](const char* action, int code) {
    return Json{
        {"action", action},
        {"onExitCodes",
         {{"containerName", container_name}, {"operator", "In"}, {"values", Json::array({code})}}}};
  };
  return {
      {"rules", Json::array({on_code("Ignore", kExitSavedRestart), on_code("FailJob", kExitUsage),
                             Json{{"action", "Ignore"},
                                  {"onPodConditions", Json::array({{{"type", "DisruptionTarget"},
                                                                    {"status", "True"}}})}}})}};
}

Words indexed_job(const JobSpec& job, const KubernetesSpec& k) {
  const Json label{{"trireme-job", job.name}};
  // Not ready: pods look for each other before they are.
  const Json service{
      {"apiVersion", "v1"},
      {"kind", "Service"},
      {"metadata", metadata(job.name, k)},
      {"spec", {{"clusterIP", "None"}, {"publishNotReadyAddresses", true}, {"selector", label}}}};
  Json spec = pod(job, k, "trireme");
  Json pod_spec{{"restartPolicy", "Never"}};
  if (job.nodes > 1) pod_spec["subdomain"] = job.name;
  pod_spec.update(spec);
  const Json indexed{{"apiVersion", "batch/v1"},
                     {"kind", "Job"},
                     {"metadata", metadata(job.name, k)},
                     {"spec",
                      {{"completionMode", "Indexed"},
                       {"completions", job.nodes},
                       {"parallelism", job.nodes},
                       {"backoffLimit", kFailuresOfNode * job.nodes},
                       {"podFailurePolicy", failure_policy("trireme")},
                       {"template", {{"metadata", {{"labels", label}}}, {"spec", pod_spec}}}}}};
  Words documents;
  if (job.nodes > 1) documents.push_back(yaml_document(service));
  documents.push_back(yaml_document(indexed));
  return documents;
}

Words pytorch_job(const JobSpec& job, const KubernetesSpec& k) {
  // The operator wants this name.
  const Json replica{{"restartPolicy", "OnFailure"},
                     {"template", {{"spec", pod(job, k, "pytorch")}}}};
  const auto replicas = [&](int n) {
    Json one{{"replicas", n}};
    one.update(replica);
    return one;
  };
  Json spec{{"runPolicy", {{"backoffLimit", kFailuresOfNode * job.nodes}}}};
  if (job.elastic()) {
    spec["elasticPolicy"] = {
        {"rdzvBackend", "c10d"}, {"minReplicas", job.least_nodes}, {"maxReplicas", job.nodes}};
    spec["pytorchReplicaSpecs"] = {{"Worker", replicas(job.nodes)}};
  } else {
    spec["pytorchReplicaSpecs"] = {{"Master", replicas(1)}};
    if (job.nodes > 1) spec["pytorchReplicaSpecs"]["Worker"] = replicas(job.nodes - 1);
  }
  return {yaml_document({{"apiVersion", "kubeflow.org/v1"},
                         {"kind", "PyTorchJob"},
                         {"metadata", metadata(job.name, k)},
                         {"spec", spec}})};
}

Words train_job(const JobSpec& job, const KubernetesSpec& k) {
  Json pod_spec{{"restartPolicy", "Never"}};
  pod_spec.update(pod(job, k, "node"));
  const Json of_pods{{"backoffLimit", kFailuresOfNode * job.nodes},
                     {"podFailurePolicy", failure_policy("node")},
                     {"template", {{"spec", pod_spec}}}};
  const Json node{
      {"name", "node"},
      {"template",
       {{"metadata", {{"labels", {{"trainer.kubeflow.org/trainjob-ancestor-step", "trainer"}}}}},
        {"spec", of_pods}}}};
  const Json runtime{
      {"apiVersion", "trainer.kubeflow.org/v1alpha1"},
      {"kind", "TrainingRuntime"},
      {"metadata", metadata(job.name, k)},
      {"spec",
       {{"mlPolicy",
         {{"numNodes", job.nodes}, {"torch", {{"numProcPerNode", job.ranks_per_node}}}}},
        {"template", {{"spec", {{"replicatedJobs", Json::array({node})}}}}}}}};
  const Json train{
      {"apiVersion", "trainer.kubeflow.org/v1alpha1"},
      {"kind", "TrainJob"},
      {"metadata", metadata(job.name, k)},
      {"spec",
       {{"runtimeRef",
         {{"apiGroup", "trainer.kubeflow.org"}, {"kind", "TrainingRuntime"}, {"name", job.name}}},
        {"trainer",
         {{"numNodes", job.nodes},
          {"numProcPerNode", job.ranks_per_node},
          {"resourcesPerNode", resources(job)}}}}}};
  return {yaml_document(runtime), yaml_document(train)};
}

}  // namespace

std::string manifests(const JobSpec& job, const KubernetesSpec& k) {
  std::string text = "# Printed by trireme job kubernetes: a launcher in each pod.\n";
  if (job.needs_secret())
    text += fmt::format(
        "# The job's secret is made once, and stands here by its name alone:\n"
        "#   openssl rand -hex 32 | kubectl{} create secret generic {} "
        "--from-file=secret=/dev/stdin\n",
        k.name_space.empty() ? "" : " -n " + k.name_space, k.secret);
  Json data = Json::object();
  for (const auto& [name, content] : k.configs) data[name] = content;
  text += yaml_document({{"apiVersion", "v1"},
                         {"kind", "ConfigMap"},
                         {"metadata", metadata(config_map(job), k)},
                         {"data", data}});
  const Words documents = k.kind == Manifest::job          ? indexed_job(job, k)
                          : k.kind == Manifest::pytorchjob ? pytorch_job(job, k)
                                                           : train_job(job, k);
  for (const std::string& document : documents) text += "---\n" + document;
  return text;
}

}  // namespace trireme::job

// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/job/job_flags.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <regex>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/front/config_words.h"
#include "trireme/front/train_flags.h"
#include "trireme/launch/flags/options.h"
#include "trireme/launch/flags/text.h"

namespace trireme::job {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using Setter = std::function<void(const std::string&)>;

constexpr size_t kLongestName = 40;           // a pod's is longer, and has at most 63 characters
constexpr size_t kMostConfigBytes = 900'000;  // of a ConfigMap, which holds 1 MiB

int whole(const std::string& flag, const std::string& text, int least, int most) {
  const auto number = launch::parse_int(text);
  check<UsageError>(number && *number >= least && *number <= most,
                    "{}={}: write a whole number from {} to {}", flag, text, least, most);
  return static_cast<int>(*number);
}

void set_nodes(JobSpec* job, const std::string& text) {
  const auto colon = text.find(':');
  job->least_nodes = whole("--nnodes", text.substr(0, colon), 1, 1024);
  job->nodes = colon == std::string::npos ? job->least_nodes
                                          : whole("--nnodes", text.substr(colon + 1), 1, 1024);
  check<UsageError>(job->least_nodes <= job->nodes,
                    "--nnodes={}: write MIN:MAX, the smaller number first", text);
}

std::string matching(const std::string& flag, const std::string& text, const char* pattern,
                     const char* what) {
  // std::regex recurses: a word of 100 kB would end the program.
  check<UsageError>(text.size() <= 1000 && std::regex_match(text, std::regex(pattern)), "{}={}: {}",
                    flag, text.substr(0, 200), what);
  return text;
}

/// From the first configuration's file: a name that clusters take, too.
std::string name_from(const std::string& file) {
  std::string name;
  for (const char c : fs::path(file).stem().string()) {
    const auto lower = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    const bool plain = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (plain)
      name += lower;
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  if (name.empty() || name[0] < 'a' || name[0] > 'z') name = "job-" + name;
  name = name.substr(0, kLongestName);
  while (name.back() == '-') name.pop_back();
  return name;
}

/// What the job itself says to its launchers; and what would undo a restart.
void refuse_settled(const Words& words) {
  static const std::pair<const char*, const char*> kSettled[] = {
      {"--nproc-per-node", "is a flag of trireme job: write it before '--'"},
      {"--nnodes", "is a flag of trireme job: write it before '--'"},
      {"--run-dir", "is a flag of trireme job: write it before '--'"},
      {"--shutdown-timeout", "follows from --grace"},
      {"--resume", "is given by the job itself: it goes on from its newest step (--resume auto)"},
      {"--overwrite", "would delete the run at each start of the job; delete it before by hand"},
      {"--dry-run", "starts nothing, and a job is to train"},
      {"--standalone", "is settled by --nnodes"},
      {"--node-rank", "is settled by the cluster"},
      {"--master-addr", "is settled by the cluster"},
      {"--master-port", "is settled by the cluster"},
      {"--local-addr", "is settled by the cluster"},
      {"--rdzv-id", "is settled by the job"},
      {"--rdzv-backend", "is settled by --nnodes"},
      {"--rdzv-endpoint", "is settled by the cluster"},
  };
  for (const std::string& word : words) {
    std::string flag = word.substr(0, word.find('='));
    std::replace(flag.begin(), flag.end(), '_', '-');
    for (const auto& [settled, why] : kSettled)
      check<UsageError>(flag != settled, "job: {} {}", settled, why);
  }
}

/// They would be refused by trireme train, on every node and after hours in a queue.
void check_train_words(const JobSpec& job, const Words& words) {
  Words all{"--nproc-per-node", std::to_string(job.ranks_per_node)}, rest;
  all.insert(all.end(), words.begin(), words.end());
  launch::extract_run_options(
      all, &rest, [](const std::string&) { return std::nullopt; },
      [] { return launch::LocalDevices{}; });
  const TrainFlags train = parse_train_flags(TrainFront{}, rest);
  check<UsageError>(!train.help, "job: --help goes before '--'");
  check<UsageError>(
      train.files.empty(),
      "job: '{}' stands after '--': configurations stand before it, and only flags of "
      "trireme train after",
      train.files.empty() ? "" : train.files.front());
}

struct Reader {
  JobFlags flags;
  std::vector<OwnFlag> own;

  void text(const char* name, const Setter& set) { own.push_back({name, OwnFlag::a_value, set}); }
  void number(const char* name, int* value, int least, int most) {
    text(name, [=](const std::string& v) { *value = whole(name, v, least, most); });
  }
  void pattern(const char* name, std::string* value, const char* pattern, const char* what) {
    text(name, [=](const std::string& v) { *value = matching(name, v, pattern, what); });
  }

  Reader() {
    JobSpec& job = flags.job;
    text("--run-dir", [&](const std::string& v) { job.run_dir = v; });
    text("--program", [&](const std::string& v) { job.program = v; });
    text("--nnodes", [&](const std::string& v) { set_nodes(&job, v); });
    number("--nproc-per-node", &job.ranks_per_node, 1, 4096);
    number("--cpus-per-rank", &job.cpus_per_rank, 1, 4096);
    number("--gpus-per-node", &job.gpus_per_node, 0, 4096);
    pattern("--memory", &job.memory, "[1-9][0-9]{0,9}[KMGT]",
            "write a number and K, M, G or T, as in 64G");
    number("--grace", &job.grace, kLeastGrace, 65535);
  }

  /// Hands on to `trireme train`, in the order in which they were given.
  void passed_on(const char* name, const Setter& see = {}) {
    text(name, [this, name, see](const std::string& v) {
      if (see) see(v);
      flags.job.train_words.insert(flags.job.train_words.end(), {name, v});
    });
  }

  void read(const Words& words, const char* verb) {
    JobSpec& job = flags.job;
    const auto dashes = std::find(words.begin(), words.end(), "--");
    const Words extra(dashes == words.end() ? dashes : dashes + 1, words.end());
    passed_on("--steps");
    passed_on("--max-restarts");
    passed_on("--restart-window");
    const std::string help = std::string("trireme job ") + verb + " --help";
    const ConfigWords read = read_config_words("job", help, own, Words(words.begin(), dashes));
    flags.help = read.help;
    if (flags.help) return;
    flags.files = read.files;
    check<UsageError>(!flags.files.empty(),
                      "job: name a configuration, as in 'trireme job {} examples/gpt.json'", verb);
    check<UsageError>(!job.run_dir.empty(),
                      "job: name the run folder with --run-dir, in a file system that all nodes "
                      "see: a job that starts again goes on from it");
    for (const std::string& set : read.sets)
      job.train_words.insert(job.train_words.end(), {"--set", set});
    refuse_settled(extra);
    job.train_words.insert(job.train_words.end(), extra.begin(), extra.end());
    check_train_words(job, job.train_words);
    if (job.name.empty()) job.name = name_from(flags.files.front());
    // --steps is a configuration's key, too.
    flags.sets = read.sets;
    for (size_t i = 0; i + 1 < job.train_words.size(); ++i)
      if (job.train_words[i] == "--steps")
        flags.sets.push_back("training.steps=" + job.train_words[i + 1]);
  }
};

/// sbatch ends a directive at a blank and takes quotes and '#' as its own.
const char kPlain[] = "[A-Za-z0-9_.,:@%+=/()*&|!<>~^\\[\\]-]+";
const char kSayPlain[] =
    "a directive of sbatch holds letters, digits and _.,:@%+=/()*&|!<>~^[]- without blanks; write "
    "anything else into the script by hand";

void take_directive(JobFlags* flags, const std::string& option) {
  matching("--sbatch", option, kPlain, kSayPlain);
  check<UsageError>(option.size() > 1 && option[0] == '-',
                    "--sbatch={}: write an option of sbatch, as in --sbatch=--exclusive", option);
  static const std::pair<const char*, const char*> kOurs[] = {
      {"--nodes", "--nnodes"},
      {"-N", "--nnodes"},
      {"--ntasks", "--nproc-per-node"},
      {"-n", "--nproc-per-node"},
      {"--ntasks-per-node", "--nproc-per-node"},
      {"--cpus-per-task", "--cpus-per-rank"},
      {"-c", "--cpus-per-rank"},
      {"--gpus-per-node", "--gpus-per-node"},
      {"--mem", "--memory"},
      {"--signal", "--grace"},
      {"--job-name", "--name"},
      {"-J", "--name"},
  };
  for (const auto& [theirs, ours] : kOurs)
    check<UsageError>(option.substr(0, option.find('=')) != theirs,
                      "--sbatch={}: that is what {} is for", option, ours);
  check<UsageError>(option != "--no-requeue", "--sbatch={}: a job that is stopped could not go on",
                    option);
  flags->slurm.directives.push_back(option);
}

/// A name in a ConfigMap, from a file's; not one of those that are taken.
std::string config_name(const std::string& file, std::set<std::string>* taken) {
  std::string name;
  for (const char c : fs::path(file).filename().string()) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    name += plain ? c : '_';
  }
  // The words of a command that begin with a dash are flags.
  if (name.empty() || name[0] == '.' || name[0] == '-') name = "config" + name;
  name = name.substr(0, 200);
  std::string unique = name;
  for (int n = 2; !taken->insert(unique).second; ++n) unique = std::to_string(n) + "-" + name;
  return unique;
}

bool is_inside(const std::string& path, const std::string& folder) {
  return path == folder || path.rfind(folder == "/" ? folder : folder + "/", 0) == 0;
}

void take_volume(JobFlags* flags, const std::string& text) {
  const auto colon = text.find(':');
  const char* say =
      "write CLAIM:PATH, a PersistentVolumeClaim and the absolute path where pods see it";
  check<UsageError>(colon != std::string::npos && text.size() > colon + 1 && text[colon + 1] == '/',
                    "--volume={}: {}", text, say);
  const std::string claim =
      matching("--volume", text.substr(0, colon), "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", say);
  std::string path = fs::path(text.substr(colon + 1)).lexically_normal().string();
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  check<UsageError>(path != "/" && path.find(':') == std::string::npos,
                    "--volume={}: a volume is mounted below / , and ':' is no part of its path",
                    text);
  for (const auto& [other, place] : flags->kubernetes.volumes)
    check<UsageError>(place != path, "--volume={}: {} is mounted at {} already", text, other, path);
  flags->kubernetes.volumes.emplace_back(claim, path);
}

Manifest kind_of(const std::string& text) {
  if (text == "job") return Manifest::job;
  if (text == "pytorchjob") return Manifest::pytorchjob;
  if (text == "trainjob") return Manifest::trainjob;
  fail<UsageError>(
      "--kind={}: choose job (an Indexed Job), pytorchjob (Kubeflow's training-operator) or "
      "trainjob (Kubeflow Trainer)",
      text);
}

const char kLabel[] = "[a-z]([-a-z0-9]{0,38}[a-z0-9])?";
const char kSayLabel[] =
    "write at most 40 small letters, digits and dashes, a letter first and no dash at the end";

}  // namespace

JobFlags parse_slurm_flags(const Words& words, const std::string& folder,
                           const std::string& program) {
  Reader reader;
  JobFlags& flags = reader.flags;
  flags.job.program = program;
  const auto directive = [&](const char* name, const char* pattern, const char* what) {
    reader.text(name, [&flags, name, pattern, what](const std::string& v) {
      matching(name, v, pattern, what);
      flags.slurm.directives.push_back(std::string(name) + "=" + v);
    });
  };
  reader.pattern("--name", &flags.job.name, "[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}",
                 "write at most 64 letters, digits, dots, dashes and underscores");
  directive("--time", "UNLIMITED|[0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}",
            "write minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS, as in 1-12:00:00");
  for (const char* name : {"--partition", "--account", "--qos", "--constraint"})
    directive(name, kPlain, kSayPlain);
  reader.text("--sbatch", [&](const std::string& v) { take_directive(&flags, v); });
  reader.own.push_back(
      {"--submit", OwnFlag::nothing, [&](const std::string&) { flags.submit = true; }});
  reader.read(words, "slurm");
  if (flags.help) return flags;
  const auto absolute = [&](const std::string& path) {
    std::string full = (fs::path(folder) / path).lexically_normal().string();
    if (full.size() > 1 && full.back() == '/') full.pop_back();
    return full;
  };
  flags.slurm.folder = folder;
  flags.job.run_dir = absolute(flags.job.run_dir);
  // A name without a slash is looked for in the PATH of the job.
  if (flags.job.program.find('/') != std::string::npos)
    flags.job.program = absolute(flags.job.program);
  for (const std::string& file : flags.files) flags.slurm.configs.push_back(absolute(file));
  return flags;
}

JobFlags parse_kubernetes_flags(const Words& words) {
  Reader reader;
  JobFlags& flags = reader.flags;
  KubernetesSpec& k = flags.kubernetes;
  flags.job.program = "trireme";  // of the image
  reader.pattern("--name", &flags.job.name, kLabel, kSayLabel);
  reader.text("--kind", [&](const std::string& v) { k.kind = kind_of(v); });
  reader.pattern("--image", &k.image, "[A-Za-z0-9][A-Za-z0-9_./:@-]{0,499}",
                 "write the name of a container image, as in registry.example/trireme:1");
  reader.pattern("--namespace", &k.name_space, "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
                 "a namespace is at most 63 small letters, digits and dashes");
  reader.pattern(
      "--secret", &k.secret, "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
      "write the name of a Secret of Kubernetes: small letters, digits, dashes, dots. The "
      "secret itself is never written anywhere");
  reader.number("--user", &k.user, 1, 2'147'483'646);
  reader.text("--volume", [&](const std::string& v) { take_volume(&flags, v); });
  reader.own.push_back(
      {"--submit", OwnFlag::nothing, [](const std::string&) {
         fail<UsageError>(
             "job: --submit is for Slurm; here: trireme job kubernetes … | kubectl "
             "apply -f -");
       }});
  reader.read(words, "kubernetes");
  if (flags.help) return flags;
  JobSpec& job = flags.job;
  check<UsageError>(!k.image.empty(),
                    "job: name the container image that has trireme in it, with --image");
  check<UsageError>(job.run_dir[0] == '/', "--run-dir={}: write the absolute path that pods see",
                    job.run_dir);
  job.run_dir = fs::path(job.run_dir).lexically_normal().string();
  const bool kept = std::any_of(k.volumes.begin(), k.volumes.end(), [&](const auto& volume) {
    return is_inside(job.run_dir, volume.second);
  });
  check<UsageError>(kept,
                    "--run-dir={}: it lies in no --volume, so it would end with its pod: add "
                    "--volume CLAIM:PATH, of a claim that all pods can mount",
                    job.run_dir);
  check<UsageError>(!(job.elastic() && k.kind == Manifest::trainjob),
                    "--nnodes={}:{}: a TrainJob has one number of nodes; choose --kind job or "
                    "pytorchjob",
                    job.least_nodes, job.nodes);
  if (k.secret.empty()) k.secret = job.name + "-secret";
  std::set<std::string> taken;
  size_t bytes = 0;
  for (const std::string& file : flags.files) {
    k.configs.emplace_back(config_name(file, &taken), read_file(file));
    bytes += k.configs.back().second.size();
  }
  check<UsageError>(bytes <= kMostConfigBytes,
                    "job: the configurations have {} bytes, and a ConfigMap takes {}: name fewer "
                    "or shorter files",
                    bytes, kMostConfigBytes);
  return flags;
}

}  // namespace trireme::job

// SPDX-License-Identifier: Apache-2.0
// trireme VERB …: links no torch, so that help, run, config and doctor answer at once.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verbs.h"
#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/standard_streams.h"
#include "trireme/launch/flags/text.h"

namespace trireme {
namespace {

struct Verb {
  const char* name;
  int (*main)(int, char**);
  const char* summary;
};

// In the order in which people need them.
const Verb kVerbs[] = {
    {"train", train_main, "train a model from a configuration, on N ranks"},
    {"generate", generate_main, "write text with a trained GPT"},
    {"run", run_main, "start any program as N ranks, with torchrun's flags"},
    {"job", job_main, "what starts a training job on a cluster: Slurm or Kubernetes"},
    {"bench", bench_main, "time collectives and messages against Gloo and MPI"},
    {"config", config_main, "check and show configuration files"},
    {"summary", summary_main, "a model's parameters, and what each rank will hold in memory"},
    {"plan", plan_main, "pipeline schedules: drawn, timed, checked"},
    {"checkpoint", checkpoint_main, "list, show, verify, compare and delete checkpoints"},
    {"trace", trace_main, "which rank diverged first, from what ranks wrote down"},
    {"doctor", doctor_main, "what this machine and its links offer, and what to mend"},
    {"version", version_main, "versions"},
};

const char kHelp[] =
    R"(Trireme trains PyTorch models in C++, across threads, processes and machines.

Usage: trireme VERB [FLAGS] …

Verbs:
{}
Examples:
  trireme train examples/gpt.json --nproc-per-node 2
  trireme run --nproc-per-node 2 ./my_program --its-flag 3
  trireme config check ds_config.json
  trireme doctor

'trireme VERB --help' says more about one.
)";

std::string help_text() {
  std::string verbs;
  for (const Verb& verb : kVerbs) verbs += fmt::format("  {:<12}{}\n", verb.name, verb.summary);
  std::string text = kHelp;
  launch::replace_all(text, "{}", verbs);
  return text;
}

[[noreturn]] void fail_unknown(const std::string& word) {
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) names.push_back(verb.name);
  std::string near = launch::nearest(word, names);
  fail<UsageError>("there is no verb '{}'{} 'trireme help' lists them", word,
                   near.empty() ? "." : ": did you mean '" + near + "'?");
}

int dispatch(int argc, char** argv) {
  std::string word = argc > 1 ? argv[1] : "help";
  if (word == "help" || word == "-h" || word == "--help") {
    if (argc <= 2) {
      std::fputs(help_text().c_str(), stdout);
      return argc > 1 ? kExitDone : kExitUsage;
    }
    std::string help = "--help";
    char* forward[] = {argv[0], argv[2], help.data(), nullptr};
    return dispatch(3, forward);
  }
  if (word == "--version" || word == "-V") word = "version";
  for (const Verb& verb : kVerbs)
    if (word == verb.name) return verb.main(argc - 1, argv + 1);
  fail_unknown(word);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::open_missing_standard_streams();
  trireme::set_log_level(trireme::LogLevel::info);
  try {
    return trireme::dispatch(argc, argv);
  } catch (const std::bad_alloc&) {
    trireme::log_error("out of memory before anything was started: see 'ulimit -v' and 'free'");
    return trireme::kExitFailed;
  } catch (const std::exception& error) {
    trireme::log_error("{}", error.what());
    return trireme::exit_code_for(error);
  }
}

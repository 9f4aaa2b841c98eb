// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "cli/verbs.h"
#include "cli/worker_program.h"
#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/config/config.h"
#include "trireme/config/sections/generate.h"
#include "trireme/front/run_folder.h"
#include "trireme/front/start_ranks.h"

namespace trireme {

namespace {

/// Of a whole run, where its steps are: its config.json may name another folder.
std::string steps_of(const std::string& path, const std::string& run) {
  std::error_code error;
  if (!std::filesystem::equivalent(path, run, error)) return path;
  const std::string steps = steps_named_by(run), recorded = steps_folder_of(run);
  check<UsageError>(steps != run || recorded == run || holds_checkpoint(run),
                    "{} has no checkpoint, and none is in {}, where its config.json says that it "
                    "saves",
                    path, recorded);
  return steps == run ? path : steps;
}

}  // namespace

int generate_main(int argc, char** argv) {
  CLI::App app("Write text with a trained GPT: the prompt, then what the model adds, to stdout.",
               "trireme generate");
  app.footer(
      "Examples:\n"
      "  trireme generate runs/gpt/20261121-101500 --prompt \"template <\"\n"
      "  trireme generate runs/gpt/20261121-101500/step-00000500 --tokens 1000 --temperature 0");
  std::string path, prompt;
  int64_t tokens = 0, top_k = 0, seed = 42;
  double temperature = 0;
  app.add_option("RUN", path, "a run folder (its newest checkpoint) or a step folder")->required();
  auto* prompt_flag =
      app.add_option("--prompt", prompt, "text to go on from [generate.prompt of the run]");
  auto* tokens_flag = app.add_option("--tokens", tokens, "bytes to add [generate.tokens]")
                          ->check(CLI::Range(0, 1 << 24));
  auto* temperature_flag =
      app.add_option("--temperature", temperature, "0: always the likeliest [generate.temperature]")
          ->check(CLI::Range(0.0, 100.0));
  auto* top_k_flag =
      app.add_option("--top-k", top_k, "only the k likeliest; 0: all [generate.top_k]")
          ->check(CLI::Range(0, 1 << 20));
  app.add_option("--seed", seed, "of the draws [42]");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitDone;
  } catch (const CLI::ParseError& e) {
    fail<UsageError>("generate: {}. 'trireme generate --help' shows its flags",
                     parse_problem(app, e));
  }
  const std::string run = run_folder_of(path);
  const Config config = Config::load(ConfigInputs::from({run + "/config.json"}));
  auto section = config.section<GenerateSection>();
  if (prompt_flag->count()) section.prompt = prompt;
  if (tokens_flag->count()) section.tokens = tokens;
  if (temperature_flag->count()) section.temperature = temperature;
  if (top_k_flag->count()) section.top_k = top_k;
  become({worker_program(), "generate", "--config", run + "/config.json", "--checkpoint",
          std::filesystem::absolute(steps_of(path, run)).lexically_normal().string(), "--prompt",
          section.prompt, "--tokens", std::to_string(section.tokens), "--temperature",
          std::to_string(section.temperature), "--top-k", std::to_string(section.top_k), "--seed",
          std::to_string(seed)});
}

}  // namespace trireme
